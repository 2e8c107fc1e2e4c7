"""Unitary-style recurrent network on a delayed-recall task."""
import argparse
import functools
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import orthogonal


class ModReLU(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width).uniform_(-0.01, 0.01))

    def forward(self, x):
        return torch.sign(x) * F.relu(x.abs() + self.bias)


class RecurrentLayer(nn.Module):
    def __init__(self, inputs, width, style):
        super().__init__()
        self.width, self.style = width, style
        self.feed = nn.Linear(inputs, width)
        self.carry = orthogonal(nn.Linear(width, width, bias=False), orthogonal_map="matrix_exp")
        self.act = ModReLU(width)
        self.norm = nn.LayerNorm(width)

    def mover(self):
        if self.style == "fixed":
            return functools.partial(F.linear, weight=self.carry.weight)
        return self.carry

    def forward(self, x, lengths_mask):
        state = x.new_zeros(x.shape[1], self.width)
        pre = self.feed(x)
        move, outs = self.mover(), []
        for t in range(x.shape[0]):
            fresh = self.act(move(state) + pre[t])
            state = torch.where(lengths_mask[t], fresh, state)
            outs.append(state)
        return self.norm(torch.stack(outs))


class RecallNet(nn.Module):
    def __init__(self, symbols, width, layers, style):
        super().__init__()
        self.embed = nn.Embedding(symbols, width)
        self.layers = nn.ModuleList(RecurrentLayer(width, width, style) for _ in range(layers))
        self.mix = nn.Sequential(nn.Linear(width, 6 * width), nn.GELU(), nn.Linear(6 * width, width))
        self.head = nn.Linear(width, symbols)

    def forward(self, tokens):
        mask = (tokens >= 0)[:, :, None]
        x = self.embed(tokens.clamp_min(0))
        for layer in self.layers:
            x = x + layer(x, mask)
        return self.head(x + self.mix(x))


def make_batch(g, batch, recall, delay, symbols):
    """`recall` symbols, a gap, a marker, then the symbols are asked for again."""
    payload = torch.randint(2, symbols, (recall, batch), generator=g)
    gap = torch.zeros(delay, batch, dtype=torch.long)
    marker = torch.ones(1, batch, dtype=torch.long)
    blanks = torch.zeros(recall, batch, dtype=torch.long)
    tokens = torch.cat([payload, gap, marker, blanks])
    target = torch.full_like(tokens, -100)
    target[-recall:] = payload
    return tokens, target


def parameter_groups(model, decay):
    plain, shrunk = [], []
    for name, p in model.named_parameters():
        (plain if p.ndim < 2 or "parametrizations" in name or "embed" in name else shrunk).append(p)
    return [{"params": plain, "weight_decay": 0.0}, {"params": shrunk, "weight_decay": decay}]


class Meter:
    def __init__(self, momentum=0.98):
        self.value, self.momentum = None, momentum

    def update(self, x):
        self.value = x if self.value is None else self.momentum * self.value + (1 - self.momentum) * x
        return self.value


def fit(args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    g = torch.Generator().manual_seed(args.seed + 1)
    model = RecallNet(args.symbols, args.width, args.layers, args.variant)
    opt = torch.optim.AdamW(parameter_groups(model, 0.01), lr=1e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 50))
    meter, times = Meter(), []
    began = time.perf_counter()
    for _ in range(args.steps):
        t0 = time.perf_counter()
        tokens, target = make_batch(g, args.batch, args.recall, args.delay, args.symbols)
        logits = model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-100)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        meter.update(loss.item())
        times.append((time.perf_counter() - t0) * 1e3)
        if time.perf_counter() - began > args.max_seconds:
            break
    return times, meter.value


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=23)
    ap.add_argument("--batch", type=int, default=96)
    ap.add_argument("--width", type=int, default=112)
    ap.add_argument("--layers", type=int, default=2)
    ap.add_argument("--recall", type=int, default=8)
    ap.add_argument("--delay", type=int, default=15)
    ap.add_argument("--symbols", type=int, default=18)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    times, loss = fit(args)
    kept = times[2:] or times
    print(json.dumps({"case": "ce04", "variant": args.variant, "steps": len(times), "loss": round(loss, 4),
                      "mean_step_ms": round(statistics.fmean(kept), 2),
                      "median_step_ms": round(statistics.median(kept), 2)}))


if __name__ == "__main__":
    main()
