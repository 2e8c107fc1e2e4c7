"""Class-conditional latent diffusion sampling with guidance, one denoising step at a time."""
import argparse
import json
import statistics
import time
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gj02"
CHOICES = ["healthy"]
DEFAULT_STEPS = 300
WARMUP = 4


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


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.n1 = nn.Parameter(torch.ones(width))
        self.n2 = nn.Parameter(torch.ones(width))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        h = F.rms_norm(x, (d,), self.n1)
        q, k, v = self.qkv(h).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + self.out(a)
        return x + self.down(F.silu(self.up(F.rms_norm(x, (d,), self.n2))))


class Denoiser(nn.Module):
    def __init__(self, channels, width, heads, depth, classes):
        super().__init__()
        self.width = width
        self.inp = nn.Linear(channels, width)
        self.cls = nn.Embedding(classes + 1, width)
        self.time = nn.Linear(256, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.final = nn.Linear(width, channels)

    def forward(self, x, t, y):
        f = torch.exp(-math.log(1e4) * torch.arange(128, device=x.device) / 128)
        e = (t[:, None].float() * f)
        e = torch.cat([e.sin(), e.cos()], 1).to(x.dtype)
        h = self.inp(x) + (self.time(e) + self.cls(y))[:, None]
        for layer in self.layers:
            h = layer(h)
        return self.final(h)


class Trajectory:
    """One batch of images on its way from noise to latents."""

    def __init__(self, sampler):
        s = sampler
        self.x = torch.randn(s.batch, s.tokens, s.channels, generator=s.gen).to(s.device)
        self.y = torch.randint(0, s.classes, (s.batch,), generator=s.gen).to(s.device)
        self.at = 0


class Sampler:
    def __init__(self, model, device, batch, tokens, channels, classes, count=30, guidance=4.0):
        self.model, self.device = model, device
        self.batch, self.tokens, self.channels, self.classes = batch, tokens, channels, classes
        self.guidance = guidance
        self.times = [int(999 * (1 - i / count)) for i in range(count)]
        self.abar = [math.cos(0.5 * math.pi * t / 1000) ** 2 for t in self.times] + [1.0]
        self.gen = torch.Generator().manual_seed(0)
        self.now = Trajectory(self)
        self.done = 0

    @torch.no_grad()
    def advance(self):
        tr = self.now
        dtype = next(self.model.parameters()).dtype
        both = torch.cat([tr.x, tr.x]).to(dtype)
        label = torch.cat([tr.y, torch.full_like(tr.y, self.classes)])
        t = torch.full((2 * self.batch,), self.times[tr.at], device=self.device)
        cond, free = self.model(both, t, label).float().chunk(2)
        eps = free + self.guidance * (cond - free)
        a, b = self.abar[tr.at], self.abar[tr.at + 1]
        x0 = (tr.x - math.sqrt(1 - a) * eps) / math.sqrt(max(a, 1e-4))
        limit = torch.quantile(x0[:, ::8].abs().flatten(1), 0.995, dim=1).clamp_min(1.0)[:, None, None]
        x0 = x0.clamp(-limit, limit)
        tr.x = math.sqrt(b) * x0 + math.sqrt(1 - b) * eps
        if not math.isfinite(tr.x.abs().max().item()):
            raise RuntimeError(f"sample left the finite range at step {tr.at}")
        tr.at += 1
        if tr.at == len(self.times):
            self.done += self.batch
            self.now = Trajectory(self)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    big = device.type == "cuda"
    width, heads, depth = (6144, 48, 5) if big else (64, 4, 2)
    with torch.device(device):
        torch.set_default_dtype(torch.bfloat16 if big else torch.float32)
        model = Denoiser(16, width, heads, depth, 1000).eval()
        torch.set_default_dtype(torch.float32)
    sampler = Sampler(model, device, 8 if big else 2, 1024 if big else 32, 16, 1000)
    run_loop(args, device, sampler.advance)
    print(f"# {sampler.done} samples finished", flush=True)


if __name__ == "__main__":
    main()
