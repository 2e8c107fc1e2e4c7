"""Sampling from a continuous normalising flow over embeddings: fixed-grid Runge-Kutta through a time-dependent network."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NAME = "t08"
STEPS = 180
WARMUP = 4


class ConcatLinear(nn.Module):
    """Linear layer whose input carries the time as one more feature."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = nn.Linear(inputs + 1, outputs)

    def forward(self, t, x):
        return self.layer(torch.cat((t.expand(x.shape[0], 1), x), 1))


class BiasedLinear(nn.Module):
    """Linear layer with a bias that moves linearly with the time."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)
        self.drift = nn.Parameter(torch.randn(outputs) * inputs ** -0.5)

    def forward(self, t, x):
        return F.linear(x, self.layer.weight, self.layer.bias + t * self.drift)


class Dynamics(nn.Module):
    def __init__(self, width, hidden, depth, layer):
        super().__init__()
        sizes = [width] + [hidden] * (depth - 1) + [width]
        self.layers = nn.ModuleList(layer(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, t, x):
        for layer in self.layers[:-1]:
            x = F.silu(layer(t, x))
        return self.layers[-1](t, x)


class Flow:
    def __init__(self, dynamics, particles, width, intervals, device, dtype):
        self.dynamics, self.intervals, self.at = dynamics, intervals, 0
        self.shape, self.device, self.dtype = (particles, width), device, dtype
        self.grid = torch.linspace(0, 1, 2 * intervals + 1, device=device, dtype=dtype)
        self.h = 1.0 / intervals

    @torch.inference_mode()
    def step(self):
        i = self.at % self.intervals
        if i == 0:
            self.x = torch.randn(self.shape, device=self.device, dtype=self.dtype)
        self.at += 1
        t0, t1, t2 = self.grid[2 * i], self.grid[2 * i + 1], self.grid[2 * i + 2]
        x, h, f = self.x, self.h, self.dynamics
        k1 = f(t0, x)
        k2 = f(t1, torch.add(x, k1, alpha=h / 2))
        k3 = f(t1, torch.add(x, k2, alpha=h / 2))
        k4 = f(t2, torch.add(x, k3, alpha=h))
        self.x = x.add(k1, alpha=h / 6).add_(k2, alpha=h / 3).add_(k3, alpha=h / 3).add_(k4, alpha=h / 6)


VARIANTS = {"slow": ConcatLinear, "fixed": BiasedLinear}


def build(device, layer):
    gpu = device.type == "cuda"
    width, hidden, depth, particles = (2048, 4096, 5, 24576) if gpu else (16, 32, 3, 20)
    dtype = torch.bfloat16
    dynamics = Dynamics(width, hidden, depth, layer).to(device, dtype).eval()
    return Flow(dynamics, particles, width, 40, device, dtype).step


def settle(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(step, device, steps, limit):
    marks = []
    settle(device)
    begin = time.perf_counter()
    last = begin
    for _ in range(steps):
        step()
        now = time.perf_counter()
        marks.append((now - last) * 1e3)
        last = now
        if limit and now - begin > limit:
            break
    settle(device)
    total = (time.perf_counter() - begin) * 1e3
    return len(marks), total / len(marks), statistics.median(marks)


def record(step, device, path):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, schedule=torch.profiler.schedule(wait=0, warmup=2, active=4, repeat=1),
                                record_shapes=True, with_stack=True, with_modules=True,
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--variant", choices=sorted(VARIANTS), default=sorted(VARIANTS)[-1])
    ap.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    ap.add_argument("--steps", type=int, default=STEPS)
    ap.add_argument("--max-seconds", type=float, default=None)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    step = build(device, VARIANTS[args.variant])
    for _ in range(WARMUP):
        step()
    count, mean, median = timed(step, device, args.steps, args.max_seconds)
    print(json.dumps({"program": NAME, "variant": args.variant, "steps": count,
                      "step_ms_mean": round(mean, 3), "step_ms_median": round(median, 3)}), flush=True)
    if args.trace:
        record(step, device, args.trace)


if __name__ == "__main__":
    main()
