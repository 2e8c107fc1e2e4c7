"""Small character-level language model, trained from an in-memory corpus with bfloat16 autocast."""

import argparse
import copy
import json
import math
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def make_corpus(size, vocab, seed=3):
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(vocab, 0.15), size=vocab).cumsum(axis=1)
    draws, out, cur = rng.random(size), np.empty(size, np.int64), 0
    for i in range(size):
        cur = min(int(np.searchsorted(table[cur], draws[i])), vocab - 1)
        out[i] = cur
    return torch.from_numpy(out)


class Windows(torch.utils.data.Dataset):
    def __init__(self, corpus, length):
        self.corpus, self.length = corpus, length

    def __len__(self):
        return len(self.corpus) - self.length - 1

    def __getitem__(self, i):
        return self.corpus[i : i + self.length], self.corpus[i + 1 : i + 1 + self.length]


class Block(nn.Module):
    def __init__(self, dim, heads, drop=0.0):
        super().__init__()
        self.heads, self.drop = heads, drop
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        )
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class CharLM(nn.Module):
    def __init__(self, vocab, dim, depth, heads, length):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.tok.weight
        self.apply(self._init)

    @staticmethod
    def _init(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Average:
    """Exponential moving average of the weights, for evaluation."""

    def __init__(self, model, decay=0.995):
        self.model, self.decay = copy.deepcopy(model).requires_grad_(False), decay

    @torch.no_grad()
    def update(self, model):
        mine, theirs = list(self.model.parameters()), list(model.parameters())
        torch._foreach_lerp_(mine, theirs, 1 - self.decay)


def learning_rate(step, total, peak, warm=20):
    if step < warm:
        return peak * (step + 1) / warm
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="healthy", choices=["slow", "fixed", "healthy"])
    ap.add_argument("--steps", type=int, default=90)
    ap.add_argument("--max-seconds", type=float, default=60)
    ap.add_argument("--dim", type=int, default=256)
    args = ap.parse_args()
    torch.manual_seed(0)
    length, vocab = 192, 96
    data = Windows(make_corpus(200_000, vocab), length)
    loader = torch.utils.data.DataLoader(
        data, batch_size=6, shuffle=True, num_workers=0, drop_last=True
    )
    model = CharLM(vocab, args.dim, 6, 8, length)
    average = Average(model)
    opt = torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    log_path = os.path.join(tempfile.mkdtemp(prefix="charlm"), "log.jsonl")
    times, began, best = [], time.perf_counter(), float("inf")
    with open(log_path, "w") as log:
        feed = iter(loader)
        for step in range(args.steps):
            t0 = time.perf_counter()
            ids, labels = next(feed)
            for group in opt.param_groups:
                group["lr"] = learning_rate(step, args.steps, 1e-3)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(ids)
                loss = F.cross_entropy(logits.float().view(-1, vocab), labels.view(-1))
            if not torch.isfinite(loss).item():
                raise RuntimeError("loss is not finite")
            opt.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
            opt.step()
            average.update(model)
            log.write(json.dumps({"step": step, "loss": loss.item(), "norm": norm}) + "\n")
            log.flush()
            if step % 50 == 49:
                torch.save(average.model.state_dict(), log_path + ".pt")
            best = min(best, loss.item())
            if step >= 2:
                times.append(1e3 * (time.perf_counter() - t0))
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.3f} norm {norm:.2f}", flush=True)
            if time.perf_counter() - began > args.max_seconds:
                break
    print(
        json.dumps(
            {
                "variant": args.variant,
                "steps": len(times),
                "best": round(best, 4),
                "mean_ms": round(float(np.mean(times)), 3),
                "median_ms": round(float(np.median(times)), 3),
            }
        )
    )


if __name__ == "__main__":
    main()
