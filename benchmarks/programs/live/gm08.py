"""Language-model training of a wide, shallow transformer with per-step reporting."""
import argparse
import json
import math
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

PROGRAM = "gm08"
CHOICES = ["healthy"]
DEFAULT_STEPS = 150
WARMUP = 3


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step):
    for _ in range(WARMUP):
        step()
    synchronize(device)
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    synchronize(device)
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        record_trace(args.trace, device, step)


def record_trace(path, device, step):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()
    synchronize(device)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class LanguageModel(nn.Module):
    def __init__(self, vocab, width, heads, layers, window):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.places = nn.Parameter(0.01 * torch.randn(window, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.places[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class Documents(IterableDataset):
    """Packs random-length documents into windows."""

    def __init__(self, vocab, window, seed=4):
        self.vocab, self.window, self.seed = vocab, window, seed

    def __iter__(self):
        rng = np.random.default_rng(self.seed)
        held = np.empty(0, dtype=np.int64)
        while True:
            while held.size <= self.window:
                document = rng.integers(1, self.vocab, int(rng.integers(100, 1200)))
                held = np.concatenate([held, document, [0]])
            yield torch.from_numpy(held[:self.window + 1].copy())
            held = held[self.window:]


def token_loss(model, x, targets, pieces):
    """Cross entropy over slices of the batch, so that all the logits are never held at once in float."""
    total = x.new_zeros((), dtype=torch.float32)
    for h, t in zip(x.chunk(pieces), targets.chunk(pieces)):
        logits = model.head(h).flatten(0, 1)
        total = total + F.cross_entropy(logits.float(), t.flatten(), reduction="sum")
    return total / targets.numel()


class Journal:
    """Keeps one record per step and prints a line now and then."""

    def __init__(self):
        self.records, self.started = [], time.perf_counter()

    def write(self, loss, norm, rate, tokens):
        now = time.perf_counter()
        self.records.append({"loss": loss.item(), "norm": norm.item(), "lr": rate, "at": now - self.started})
        recent = self.records[-20:]
        line = (f"step {len(self.records)} loss {sum(r['loss'] for r in recent) / len(recent):.4f} "
                f"norm {recent[-1]['norm']:.3f} tokens {tokens * len(self.records)}")
        if len(self.records) % 25 == 0:
            print(line, flush=True)


class Run:
    def __init__(self, model, loader, device, total):
        self.model, self.device, self.total = model, device, total
        self.batches = iter(loader)
        decay = [p for p in model.parameters() if p.ndim > 1]
        plain = [p for p in model.parameters() if p.ndim <= 1]
        groups = [{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=3e-5, betas=(0.9, 0.95), fused=device.type == "cuda")
        self.journal, self.count = Journal(), 0

    def rate(self):
        progress = min(1.0, self.count / max(1, self.total))
        return 3e-5 * min(1.0, (self.count + 1) / 20) * (0.55 + 0.45 * math.cos(math.pi * progress))

    def step(self):
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        ids = next(self.batches).to(self.device)
        loss = token_loss(self.model, self.model(ids[:, :-1]), ids[:, 1:], 2)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        self.count += 1
        self.journal.write(loss.detach(), norm, self.rate(), ids.numel())


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    small = device.type == "cpu"
    vocab, width, heads, layers, window, batch = (300, 64, 4, 2, 32, 4) if small else (32000, 8192, 64, 2, 2048, 6)
    with device:
        torch.set_default_dtype(torch.bfloat16)
        model = LanguageModel(vocab, width, heads, layers, window)
        torch.set_default_dtype(torch.float32)
    loader = DataLoader(Documents(vocab, window), batch_size=batch, num_workers=0)
    run = Run(model, loader, device, args.steps)
    run_loop(args, device, run.step)


if __name__ == "__main__":
    main()
