"""Pre-training a small GPT with Muon on the matrices and AdamW on everything else."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.proj = nn.Linear(d, d, bias=False)
        self.fc = nn.Linear(d, 4 * d, bias=False)
        self.out = nn.Linear(4 * d, d, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, vocab, ctx, d, depth, heads):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids, targets):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def orthogonalize(g, iters=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()
    x = x / (x.norm() + 1e-7)
    for _ in range(iters):
        s = x @ x.mT
        x = torch.addmm(x, torch.addmm(s, s, s, beta=b, alpha=c), x, beta=a)
    return x


def orthogonalize_any(g, iters=5):
    if g.shape[0] > g.shape[1]:
        return orthogonalize(g.mT.contiguous(), iters).mT
    return orthogonalize(g, iters)


class Muon(torch.optim.Optimizer):
    def __init__(self, params, ortho, lr=0.02, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))
        self.ortho = ortho

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            for p in params:
                if "buf" not in self.state[p]:
                    self.state[p]["buf"] = torch.zeros_like(p)
            grads = [p.grad for p in params]
            bufs = [self.state[p]["buf"] for p in params]
            torch._foreach_lerp_(bufs, grads, 1 - group["momentum"])
            torch._foreach_lerp_(grads, bufs, group["momentum"])
            for p, g in zip(params, grads):
                p.add_(self.ortho(g), alpha=-group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5)


class Run:
    def __init__(self, args):
        torch.manual_seed(0)
        self.cuda = args.device == "cuda"
        vocab, ctx, d, depth, heads, batch = (32768, 1024, 1024, 12, 16, 16) if self.cuda else (128, 16, 32, 2, 2, 2)
        self.device, self.vocab = args.device, vocab
        self.model = GPT(vocab, ctx, d, depth, heads).to(args.device)
        self.ids = torch.randint(vocab, (8, batch, ctx + 1), device=args.device)
        matrices = [p for p in self.model.blocks.parameters() if p.ndim == 2]
        chosen = {id(p) for p in matrices}
        rest = [p for p in self.model.parameters() if id(p) not in chosen]
        ortho = {"slow": orthogonalize, "fixed": orthogonalize_any}[args.variant]
        self.opts = [Muon(matrices, ortho),
                     torch.optim.AdamW(rest, lr=3e-4, fused=True)]
        self.i = 0

    def step(self):
        ids = self.ids[self.i % len(self.ids)]
        self.i += 1
        with torch.autocast(self.device, dtype=torch.bfloat16):
            loss = self.model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        for opt in self.opts:
            opt.step()
            opt.zero_grad(set_to_none=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    p.add_argument("--device", default="cuda")
    p.add_argument("--steps", type=int, default=120)
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
    print(json.dumps({"program": "y02", "variant": args.variant, "steps": len(times),
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
