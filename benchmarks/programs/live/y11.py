"""Training a recurrent-depth transformer: one wide block refines the state many times."""
import argparse
import contextlib
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def mixed_precision(device):
    return torch.autocast(device, dtype=torch.bfloat16)


class Core(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.proj = nn.Linear(d, d, bias=False)
        self.up = nn.Linear(d, 4 * d, bias=False)
        self.down = nn.Linear(4 * d, d, bias=False)

    def forward(self, state, context):
        b, t, d = state.shape
        state = state + context
        q, k, v = self.qkv(self.ln1(state)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        state = state + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return state + self.down(F.silu(self.up(self.ln2(state))))


class Refiner(nn.Module):
    def __init__(self, vocab, d, heads, iterations):
        super().__init__()
        self.iterations = iterations
        self.embed = nn.Embedding(vocab, d)
        self.inject = nn.Linear(d, d, bias=False)
        self.core = Core(d, heads)
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)

    def refine(self, state, context):
        for _ in range(self.iterations):
            with mixed_precision(state.device.type):
                state = self.core(state, context)
        return state

    def forward(self, ids, targets):
        e = self.embed(ids)
        with mixed_precision(e.device.type):
            context = self.inject(e).float()
        state = self.refine(e, context)
        with mixed_precision(e.device.type):
            logits = self.head(self.norm(state))
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


class Run:
    def __init__(self, args):
        torch.manual_seed(0)
        cuda = args.device == "cuda"
        vocab, d, heads, iters, batch, t = (16384, 4096, 32, 16, 2, 512) if cuda else (64, 64, 2, 4, 2, 16)
        self.net = Refiner(vocab, d, heads, iters).to(args.device)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-4, fused=True)
        self.ids = torch.randint(vocab, (8, batch, t + 1), device=args.device)
        self.outer = {"slow": contextlib.nullcontext,
                      "fixed": lambda: mixed_precision(args.device)}[args.variant]
        self.i = 0

    def step(self):
        ids = self.ids[self.i % 8]
        self.i += 1
        with self.outer():
            loss = self.net(ids[:, :-1], ids[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    p.add_argument("--device", default="cuda")
    p.add_argument("--steps", type=int, default=160)
    p.add_argument("--max-seconds", type=float, default=1e9)
    p.add_argument("--trace")
    args = p.parse_args()
    run = Run(args)
    sync = torch.cuda.synchronize if args.device == "cuda" else (lambda: None)

    for _ in range(5):
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
    print(json.dumps({"program": "y11", "variant": args.variant, "steps": len(times),
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
