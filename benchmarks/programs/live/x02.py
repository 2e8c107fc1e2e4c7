"""Samples from a continuous normalizing flow: an adaptive Dormand-Prince solve per batch."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn


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


A = [[], [1 / 5], [3 / 40, 9 / 40], [44 / 45, -56 / 15, 32 / 9],
     [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
     [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
     [35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84]]
C = [0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0]
E = [71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40]


class Field(nn.Module):
    def __init__(self, dim, width):
        super().__init__()
        self.inp = nn.Linear(dim, width)
        self.clock = nn.Linear(2, width)
        self.mid1 = nn.Linear(width, width)
        self.mid2 = nn.Linear(width, width)
        self.out = nn.Linear(width, dim)
        for lin in (self.inp, self.mid1, self.mid2, self.out):
            nn.init.xavier_normal_(lin.weight, gain=1.5)

    def forward(self, t, y):
        phase = torch.full((1, 2), 6.2832 * t, device=y.device)
        phase[:, 1] += 1.5708
        bias = self.clock(phase.sin().to(torch.bfloat16))
        h = torch.tanh_(self.inp(y.to(torch.bfloat16)) + bias)
        h = torch.tanh_(self.mid1(h))
        h = torch.tanh_(self.mid2(h))
        return self.out(h).float()


def attempt(field, t, y, h, first):
    ks = [first]
    for row, c in zip(A[1:], C[1:]):
        point = y
        for a, k in zip(row, ks):
            if a:
                point = torch.add(point, k, alpha=h * a)
        ks.append(field(t + c * h, point))
    err = torch.zeros_like(y)
    for e, k in zip(E, ks):
        if e:
            err.add_(k, alpha=h * e)
    return point, ks[-1], err


@torch.no_grad()
def solve(field, y, rtol=1e-3, atol=1e-3):
    t, h = 0.0, 0.05
    k = field(t, y)
    evals = 1
    while t < 1.0 - 1e-6:
        h = min(h, 1.0 - t)
        new, last, err = attempt(field, t, y, h, k)
        evals += 6
        scale = atol + rtol * torch.maximum(y.abs(), new.abs())
        ratio = float((err / scale).square().mean().sqrt())
        if ratio <= 1.0:
            t, y, k = t + h, new, last
        h *= min(5.0, max(0.2, 0.9 * (ratio + 1e-10) ** -0.2))
    return y, evals


def main():
    args = parse_args(["healthy"], 200)
    device = torch.device(args.device)
    big = args.device == "cuda"
    batch, dim, width = (32768, 64, 2048) if big else (64, 16, 128)
    torch.manual_seed(0)
    field = Field(dim, width).to(device).to(torch.bfloat16).eval()
    totals = {"samples": 0, "evals": 0}

    def step(i):
        y, evals = solve(field, torch.randn(batch, dim, device=device))
        totals["samples"] += y.shape[0]
        totals["evals"] += evals

    run_steps("x02", args, step, device, warmup=3)


if __name__ == "__main__":
    main()
