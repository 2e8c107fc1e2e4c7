"""Class-conditional latent sampling with a diffusion transformer and guidance."""
import argparse
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gg03"
CHOICES = ["healthy"]
DEFAULT_STEPS = 35
WARMUP = 2


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


def timestep_features(t, dim):
    half = dim // 2
    freqs = torch.exp(-math.log(10000) * torch.arange(half, device=t.device) / half)
    angles = t[:, None] * freqs
    return torch.cat([angles.cos(), angles.sin()], -1)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.mod = nn.Linear(width, 6 * width)

    def forward(self, x, c):
        s1, b1, g1, s2, b2, g2 = self.mod(c)[:, None].chunk(6, -1)
        n, length, width = x.shape
        h = torch.addcmul(b1, self.norm1(x), 1 + s1)
        q, k, v = self.qkv(h).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        h = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, length, width)
        x = torch.addcmul(x, g1, self.proj(h))
        h = torch.addcmul(b2, self.norm2(x), 1 + s2)
        return torch.addcmul(x, g2, self.down(F.gelu(self.up(h), approximate="tanh")))


class Denoiser(nn.Module):
    def __init__(self, channels=16, side=32, width=1152, depth=16, heads=16, classes=1000):
        super().__init__()
        self.side = side
        self.embed = nn.Linear(channels, width)
        self.place = nn.Parameter(torch.randn(1, side * side, width) * 0.02)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.label = nn.Embedding(classes + 1, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.out = nn.Linear(width, channels)

    def forward(self, x, t, y):
        c = F.silu(self.time(timestep_features(t, 256).to(x.dtype)) + self.label(y))
        h = self.embed(x) + self.place
        for block in self.blocks:
            h = block(h, c)
        return self.out(F.layer_norm(h, h.shape[-1:]))


class Schedule:
    """Shifted flow-matching sigmas; host floats drive the loop, device copies feed the model."""

    def __init__(self, count, device, dtype, shift=3.0):
        s = torch.linspace(1, 0, count + 1)
        s = shift * s / (1 + (shift - 1) * s)
        self.host = s.tolist()
        self.times = (s[:-1] * 1000).to(device)

    def __iter__(self):
        for i in range(len(self.host) - 1):
            yield self.times[i], self.host[i + 1] - self.host[i]


class Sampler:
    def __init__(self, device):
        big = device.type == "cuda"
        self.device, self.dtype = device, torch.bfloat16
        self.batch = 16 if big else 1
        self.model = Denoiser(**({} if big else dict(side=8, width=128, depth=2, heads=4))).to(device, self.dtype).eval()
        self.schedule = Schedule(12, device, self.dtype)
        self.guidance = 4.0
        self.generator = torch.Generator(device).manual_seed(0)
        self.kept = None

    @torch.inference_mode()
    def step(self):
        tokens = self.model.side ** 2
        x = torch.randn(self.batch, tokens, 16, device=self.device, generator=self.generator)
        y = torch.randint(0, 1000, (self.batch,), device=self.device, generator=self.generator)
        both = torch.cat([y, torch.full_like(y, 1000)])
        for t, delta in self.schedule:
            v = self.model(torch.cat([x, x]).to(self.dtype), t.expand(2 * self.batch), both)
            cond, free = v.float().chunk(2)
            x = x + delta * torch.lerp(free, cond, self.guidance)
        self.kept = x


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    run_loop(args, device, Sampler(device).step)


if __name__ == "__main__":
    main()
