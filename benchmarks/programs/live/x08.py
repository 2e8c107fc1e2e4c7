"""Fourier neural operator for a two-dimensional flow on a non-periodic domain."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def run_steps(name, args, step, device, warmup=5):
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for i in range(warmup):
        step(i)
    sync()
    laps = []
    begin = last = time.perf_counter()
    for i in range(args.steps):
        step(warmup + i)
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and now - begin > args.max_seconds:
            break
    sync()
    mean = (time.perf_counter() - begin) / len(laps)
    print(json.dumps({"program": name, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(mean * 1e3, 3),
                      "step_ms_median": round(statistics.median(laps) * 1e3, 3)}), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                    schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                    on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for i in range(6):
                step(warmup + len(laps) + i)
                prof.step()


def parse_args(variants, steps):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=steps)
    ap.add_argument("--max-seconds", type=float, default=0.0)
    ap.add_argument("--trace", default=None)
    return ap.parse_args()


def margin_extent(n, margin=9):
    return n + margin


def smooth_extent(n, margin=9):
    size = n + margin
    while True:
        rest = size
        for p in (2, 3, 5, 7):
            while rest % p == 0:
                rest //= p
        if rest == 1 and size % 2 == 0:
            return size
        size += 1


class SpectralConv(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        scale = 1 / width
        self.low = nn.Parameter(scale * torch.randn(width, width, modes, modes, 2))
        self.high = nn.Parameter(scale * torch.randn(width, width, modes, modes, 2))

    def forward(self, x):
        m = self.modes
        spec = torch.fft.rfft2(x)
        out = torch.zeros_like(spec)
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", spec[:, :, :m, :m], torch.view_as_complex(self.low))
        out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", spec[:, :, -m:, :m], torch.view_as_complex(self.high))
        return torch.fft.irfft2(out, s=x.shape[-2:])


class Operator(nn.Module):
    def __init__(self, width, modes, depth, extent):
        super().__init__()
        self.extent = extent
        self.lift = nn.Conv2d(5, width, 1)
        self.spectral = nn.ModuleList(SpectralConv(width, modes) for _ in range(depth))
        self.local = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(depth))
        self.project = nn.Sequential(nn.Conv2d(width, 128, 1), nn.GELU(), nn.Conv2d(128, 1, 1))

    def forward(self, x):
        h, w = x.shape[-2:]
        gy = torch.linspace(0, 1, h, device=x.device).view(1, 1, h, 1).expand(x.shape[0], 1, h, w)
        gx = torch.linspace(0, 1, w, device=x.device).view(1, 1, 1, w).expand(x.shape[0], 1, h, w)
        x = self.lift(torch.cat((x, gy, gx), dim=1))
        x = F.pad(x, (0, self.extent(w) - w, 0, self.extent(h) - h))
        for i, (spectral, local) in enumerate(zip(self.spectral, self.local)):
            x = spectral(x) + local(x)
            if i + 1 < len(self.spectral):
                x = F.gelu(x)
        return self.project(x[..., :h, :w])


def relative_error(pred, truth):
    return ((pred - truth).flatten(1).norm(dim=1) / truth.flatten(1).norm(dim=1)).mean()


def main():
    args = parse_args(["slow", "fixed"], 120)
    device = torch.device(args.device)
    big = args.device == "cuda"
    batch, grid, width, modes, depth = (8, 512, 64, 24, 4) if big else (2, 32, 8, 4, 2)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    extent = {"slow": margin_extent, "fixed": smooth_extent}[args.variant]
    model = Operator(width, modes, depth, extent).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=big)
    pool = [(torch.randn(batch, 3, grid, grid, device=device), torch.randn(batch, 1, grid, grid, device=device))
            for _ in range(4)]

    def step(i):
        fields, truth = pool[i % len(pool)]
        loss = relative_error(model(fields), truth)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()

    run_steps("x08", args, step, device)


if __name__ == "__main__":
    main()
