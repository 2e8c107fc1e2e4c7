"""Compiled pre-training step with token-budget batches: every batch has its own length and width."""
import argparse
import json
import random
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.proj = nn.Linear(d, d, bias=False)
        self.gate_up = nn.Linear(d, 2 * (8 * d // 3 // 64 * 64), bias=False)
        self.down = nn.Linear(8 * d // 3 // 64 * 64, d, bias=False)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).unbind(2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        a = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        gate, up = self.gate_up(self.n2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, vocab, ctx, d, depth, heads):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)
        half = d // heads // 2
        angle = torch.outer(torch.arange(ctx), 1e4 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angle.cos()[:, None])
        self.register_buffer("sin", angle.sin()[:, None])

    def forward(self, ids, targets):
        t = ids.shape[1]
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, self.cos[:t], self.sin[:t])
        return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), targets.flatten())


class Run:
    def __init__(self, args):
        torch.manual_seed(0)
        self.rng = random.Random(0)
        self.cuda = args.device == "cuda"
        if self.cuda:
            vocab, d, depth, heads, self.budget, self.lengths = 32000, 1536, 8, 12, 16384, range(512, 2049, 64)
        else:
            vocab, d, depth, heads, self.budget, self.lengths = 128, 64, 1, 2, 256, range(32, 97, 16)
        self.device = args.device
        self.net = Decoder(vocab, 2 * max(self.lengths), d, depth, heads).to(args.device)
        self.loss_fn = torch.compile(self.net, dynamic=True)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=3e-4, fused=True)
        self.stream = torch.randint(vocab, (4_000_000 if self.cuda else 20_000,))
        self.params = list(self.net.parameters())
        self.total = torch.zeros((), device=args.device)
        self.count = 0

    def batch(self):
        t = self.rng.choice(self.lengths)
        b = self.budget // t
        at = self.rng.randrange(len(self.stream) - b * t - 1)
        span = self.stream[at: at + b * t + 1]
        if self.cuda:
            span = span.pin_memory().to(self.device, non_blocking=True)
        return span[:-1].view(b, t), span[1:].view(b, t)

    def step(self):
        ids, targets = self.batch()
        with torch.autocast(self.device, dtype=torch.bfloat16):
            loss = self.loss_fn(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.params, 1.0, foreach=True)
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        self.total += loss.detach()
        self.count += 1
        if self.count % 50 == 0:
            assert self.total.item() > 0
            self.total.zero_()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=["healthy"], default="healthy")
    p.add_argument("--device", default="cuda")
    p.add_argument("--steps", type=int, default=160)
    p.add_argument("--max-seconds", type=float, default=1e9)
    p.add_argument("--trace")
    args = p.parse_args()
    run = Run(args)
    sync = torch.cuda.synchronize if args.device == "cuda" else (lambda: None)

    for _ in range(16):
        run.step()
    sync()
    times, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        run.step()
        now = time.perf_counter()
        times.append(now - last)
        last = now
        if now - start > args.max_seconds:
            break
    sync()
    mean = (time.perf_counter() - start) / len(times)
    print(json.dumps({"program": "y05", "variant": args.variant, "steps": len(times),
                      "step_ms_mean": round(1e3 * mean, 3),
                      "step_ms_median": round(1e3 * statistics.median(times), 3)}), flush=True)

    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if args.device == "cuda" else [])
        with profile(activities=acts, schedule=schedule(wait=0, warmup=2, active=4), record_shapes=True,
                     with_stack=True, with_modules=True,
                     on_trace_ready=lambda prof: prof.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                run.step()
                prof.step()


if __name__ == "__main__":
    main()
