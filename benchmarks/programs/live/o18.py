"""Ensemble weather forecast: stochastic diffusion sampling of the next state on a lat-lon grid."""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

def parse_args(variants, default_steps):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=default_steps)
    p.add_argument("--max-seconds", type=float, default=60.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def run_loop(name, args, step):
    device = torch.device(args.device)

    def sync():
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(5 if device.type == "cuda" else 1):
        step()
    sync()
    durations = []
    start = time.perf_counter()
    for _ in range(args.steps):
        tick = time.perf_counter()
        step()
        now = time.perf_counter()
        durations.append(now - tick)
        if now - start > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - start
    print(json.dumps({
        "program": name,
        "variant": args.variant,
        "steps": len(durations),
        "step_ms_mean": round(1e3 * total / len(durations), 3),
        "step_ms_median": round(1e3 * statistics.median(durations), 3),
    }), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
            record_shapes=True, with_stack=True, with_modules=True,
        ) as prof:
            for _ in range(6):
                step()
                prof.step()
            sync()


class LonConv(nn.Module):
    """Periodic in longitude, zero padded at the poles."""

    def __init__(self, a, b, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(a, b, 3, stride=stride, padding=(1, 0))

    def forward(self, x):
        return self.conv(torch.cat([x[..., -1:], x, x[..., :1]], dim=3))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.a, self.b = LonConv(width, width), LonConv(width, width)
        self.time = nn.Linear(64, width)

    def forward(self, x, emb):
        h = self.a(F.silu(self.norm(x)))
        h = h + self.time(emb)[:, :, None, None]
        return x + self.b(F.silu(h))


class Denoiser(nn.Module):
    def __init__(self, fields, width):
        super().__init__()
        self.stem = LonConv(2 * fields, width)
        self.high = nn.ModuleList([Block(width) for _ in range(2)])
        self.down = LonConv(width, 2 * width, stride=2)
        self.low = nn.ModuleList([Block(2 * width) for _ in range(4)])
        self.up = nn.Conv2d(2 * width, width, 1)
        self.final = Block(width)
        self.head = LonConv(width, fields)

    def forward(self, x, previous, emb):
        h = self.stem(torch.cat([x, previous], dim=1))
        for block in self.high:
            h = block(h, emb)
        low = self.down(h)
        for block in self.low:
            low = block(low, emb)
        h = h + F.interpolate(self.up(low), scale_factor=2.0, mode="nearest")
        return self.head(self.final(h, emb))


class Ensemble:
    def __init__(self, model, previous, members, seed, generator_device):
        self.model, self.previous = model, previous
        self.generator = torch.Generator(device=generator_device).manual_seed(seed)
        self.shape = (members, *previous.shape[1:])
        self.sigmas = torch.logspace(1.9, -1.5, 20).tolist()
        self.index = 0
        self.state = self.draw() * self.sigmas[0]

    def draw(self):
        noise = torch.randn(self.shape, generator=self.generator, device=self.generator.device)
        return noise.to(self.previous.device)

    @torch.no_grad()
    def advance(self):
        sigma, below = self.sigmas[self.index], self.sigmas[self.index + 1]
        churned = sigma * 1.2
        x = self.state + (churned ** 2 - sigma ** 2) ** 0.5 * self.draw()
        emb = torch.full((self.shape[0], 64), churned, device=x.device).log().sin()
        scaled = (x / (1 + churned ** 2) ** 0.5).to(memory_format=torch.channels_last)
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            clean = self.model(scaled, self.previous.expand(self.shape), emb)
        self.state = x + (below - churned) * (x - clean.float()) / churned
        self.index += 1
        if self.index == len(self.sigmas) - 1:
            self.index = 0
            self.state = self.draw() * self.sigmas[0]


def main():
    args = parse_args(["slow", "fixed"], 110)
    device = torch.device(args.device)
    gpu = device.type == "cuda"
    generator_device = {"slow": torch.device("cpu"), "fixed": device}[args.variant]
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    members, fields, lat, lon, width = (8, 16, 180, 360, 256) if gpu else (2, 4, 16, 32, 16)
    model = Denoiser(fields, width).to(device).to(memory_format=torch.channels_last)
    if gpu:
        model = model.to(torch.bfloat16)
    previous = torch.randn(1, fields, lat, lon, device=device)
    ensemble = Ensemble(model, previous, members, 7, generator_device)
    run_loop("o18", args, ensemble.advance)


if __name__ == "__main__":
    main()
