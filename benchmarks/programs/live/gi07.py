"""Chebyshev-filtered subspace iteration for the upper part of a dense symmetric spectrum, to a residual of 1e-10."""
import argparse
import json
import math
import statistics
import time

import torch

PROGRAM = "gi07"
CHOICES = ["healthy"]
DEFAULT_STEPS = 2500
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=40.0)
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


def hamiltonian(n, device):
    gen = torch.Generator(device=device).manual_seed(1)
    a = torch.randn(n, n, generator=gen, device=device, dtype=torch.float64)
    a.add_(a.T.clone()).div_(2 * math.sqrt(2 * n))
    return a


def orthonormalise(x):
    """Cholesky QR."""
    low, _ = torch.linalg.cholesky_ex(x.T @ x)
    return torch.linalg.solve_triangular(low.T, x, upper=True, left=False)


def chebyshev(shifted, x, degree):
    prev, cur = x, shifted @ x
    for _ in range(degree - 1):
        prev, cur = cur, torch.addmm(prev, shifted, cur, beta=-1.0, alpha=2.0)
    return cur


class SubspaceSolver:
    def __init__(self, device):
        self.n, self.k = (8192, 1024) if device.type == "cuda" else (256, 32)
        self.a = hamiltonian(self.n, device)
        low, cut = -1.02, 0.55
        center, half = (low + cut) / 2, (cut - low) / 2
        self.shifted = self.a / half
        self.shifted.diagonal().sub_(center / half)
        gen = torch.Generator(device=device).manual_seed(9)
        self.x = orthonormalise(torch.randn(self.n, self.k, generator=gen, device=device, dtype=torch.float64))
        self.sweeps = 0
        self.residuals = []

    def sweep(self):
        self.x = orthonormalise(chebyshev(self.shifted, self.x, degree=8))
        self.sweeps += 1
        if self.sweeps % 25 == 0:
            ax = self.a @ self.x
            rest = ax - self.x @ (self.x.T @ ax)
            self.residuals.append(rest.norm().item())


def main():
    args = parse_args()
    device = torch.device(args.device)
    solver = SubspaceSolver(device)
    run_loop(args, device, solver.sweep)


if __name__ == "__main__":
    main()
