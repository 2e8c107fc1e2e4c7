"""Sampling images from a flow-matching transformer with an adaptive Dormand-Prince integrator."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

A = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
C = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
E = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(d, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(d, elementwise_affine=False)
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
        self.up = nn.Linear(d, 4 * d)
        self.down = nn.Linear(4 * d, d)
        self.mod = nn.Linear(d, 6 * d)

    def forward(self, x, c):
        s1, b1, g1, s2, b2, g2 = self.mod(c).unsqueeze(1).chunk(6, dim=-1)
        n, t, d = x.shape
        h = torch.addcmul(b1, self.norm1(x), 1 + s1)
        q, k, v = self.qkv(h).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, d)
        x = torch.addcmul(x, self.out(h), g1)
        h = torch.addcmul(b2, self.norm2(x), 1 + s2)
        h = self.down(F.gelu(self.up(h), approximate="tanh"))
        return torch.addcmul(x, h, g2)


class Velocity(nn.Module):
    def __init__(self, tokens, channels, d, depth, heads):
        super().__init__()
        self.embed = nn.Linear(channels, d)
        self.pos = nn.Parameter(0.02 * torch.randn(1, tokens, d))
        self.time = nn.Sequential(nn.Linear(256, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU())
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, channels)
        self.register_buffer("freq", torch.exp(-torch.arange(128) / 128 * 9.2))

    def forward(self, x, t):
        dtype = self.embed.weight.dtype
        angle = 1000 * t.float()[:, None] * self.freq.float()
        c = self.time(torch.cat((angle.cos(), angle.sin()), -1).to(dtype))
        h = self.embed(x.to(dtype)) + self.pos
        for block in self.blocks:
            h = block(h, c)
        return self.head(self.norm(h)).float()


class AdaptiveSampler:
    """Integrates dx/dt = v(x, t) from t = 0 to 1 under error control; then starts on new noise."""

    def __init__(self, net, shape, device, rtol, atol):
        self.net, self.shape, self.device = net, shape, device
        self.rtol, self.atol = rtol, atol
        self.accepted = self.rejected = self.finished = 0
        self.restart()

    def restart(self):
        self.x = torch.randn(self.shape, device=self.device)
        self.t, self.h = 0.0, 0.02
        self.k1 = self.velocity(self.x, 0.0)

    def velocity(self, x, t):
        return self.net(x, torch.full((x.shape[0],), t, device=x.device))

    @torch.inference_mode()
    def step(self):
        h = min(self.h, 1.0 - self.t)
        ks = [self.k1]
        for row, c in zip(A, C):
            y = self.x
            for a, k in zip(row, ks):
                if a:
                    y = torch.add(y, k, alpha=h * a)
            ks.append(self.velocity(y, self.t + c * h))
        err = sum(k * (h * e) for k, e in zip(ks, E) if e)
        scale = self.atol + self.rtol * torch.maximum(self.x.abs(), y.abs())
        ratio = (err / scale).pow(2).mean().sqrt().item()
        if ratio <= 1.0:
            self.accepted += 1
            self.t += h
            self.x, self.k1 = y, ks[-1]
        else:
            self.rejected += 1
        self.h = h * min(4.0, max(0.25, 0.9 * max(ratio, 1e-6) ** -0.2))
        if self.t > 1.0 - 1e-6:
            self.finished += 1
            self.restart()


def build(args):
    torch.manual_seed(0)
    if args.device == "cuda":
        tokens, channels, d, depth, heads, batch, dtype = 1024, 64, 4096, 4, 32, 8, torch.bfloat16
    else:
        tokens, channels, d, depth, heads, batch, dtype = 16, 8, 32, 2, 2, 2, torch.float32
    net = Velocity(tokens, channels, d, depth, heads)
    net = net.to(args.device, dtype).eval().requires_grad_(False)
    with torch.inference_mode():
        return AdaptiveSampler(net, (batch, tokens, channels), args.device, rtol=2e-2, atol=2e-2)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=["healthy"], default="healthy")
    p.add_argument("--device", default="cuda")
    p.add_argument("--steps", type=int, default=70)
    p.add_argument("--max-seconds", type=float, default=1e9)
    p.add_argument("--trace")
    args = p.parse_args()
    sampler = build(args)
    sync = torch.cuda.synchronize if args.device == "cuda" else (lambda: None)

    for _ in range(3):
        sampler.step()
    sync()
    times, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        sampler.step()
        now = time.perf_counter()
        times.append(now - last)
        last = now
        if now - start > args.max_seconds:
            break
    sync()
    mean = (time.perf_counter() - start) / len(times)
    print(json.dumps({"program": "y01", "variant": args.variant, "steps": len(times),
                      "step_ms_mean": round(1e3 * mean, 3),
                      "step_ms_median": round(1e3 * statistics.median(times), 3)}), flush=True)

    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if args.device == "cuda" else [])
        with profile(activities=acts, schedule=schedule(wait=0, warmup=2, active=4), record_shapes=True,
                     with_stack=True, with_modules=True,
                     on_trace_ready=lambda prof: prof.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                sampler.step()
                prof.step()


if __name__ == "__main__":
    main()
