"""Gaussian-process calibration: repeated double-precision solves against one dense kernel matrix."""
import argparse
import json
import statistics
import time

import torch

PROGRAM = "ga02"
CHOICES = ["healthy"]
DEFAULT_STEPS = 450
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


class KernelSystem:
    """Dense covariance of a Matern-like kernel with observation noise."""

    def __init__(self, points, length_scale, noise):
        count = points.shape[0]
        self.matrix = torch.empty(count, count, dtype=torch.float64, device=points.device)
        for lo in range(0, count, 2048):
            d = torch.cdist(points[lo:lo + 2048], points) / length_scale
            self.matrix[lo:lo + 2048] = (1 + d * 3 ** 0.5) * torch.exp(-d * 3 ** 0.5)
        self.matrix.diagonal().add_(noise)
        self.inverse_diagonal = 1.0 / self.matrix.diagonal().clone()

    def apply(self, v):
        return torch.mv(self.matrix, v)

    def precondition(self, r):
        return r * self.inverse_diagonal


def conjugate_gradient(system, rhs, start, iterations, check_every, tolerance):
    x = start.clone()
    r = rhs - system.apply(x)
    z = system.precondition(r)
    p = z.clone()
    rz = torch.dot(r, z)
    bound = tolerance * rhs.norm()
    used = 0
    for i in range(iterations):
        ap = system.apply(p)
        alpha = rz / torch.dot(p, ap)
        x.addcmul_(alpha, p)
        r.addcmul_(-alpha, ap)
        z = system.precondition(r)
        rz_new = torch.dot(r, z)
        p.mul_(rz_new / rz).add_(z)
        rz = rz_new
        used = i + 1
        if used % check_every == 0 and bool((r.norm() < bound).item()):
            break
    return x, r.norm(), used


class Observations:
    """A drifting signal sampled at fixed sites, so that each solve has a new right-hand side."""

    def __init__(self, points):
        self.generator = torch.Generator(device=points.device).manual_seed(7)
        self.points = points
        self.phase = 0.0

    def __call__(self):
        self.phase += 0.05
        clean = torch.sin(4 * self.points[:, 0] + self.phase) * torch.cos(3 * self.points[:, 1])
        jitter = torch.randn(clean.shape, dtype=torch.float64, device=clean.device, generator=self.generator)
        return clean + 0.01 * jitter


class Journal:
    def __init__(self):
        self.rows = []

    def add(self, misfit, residual, used):
        self.rows.append({"misfit": float(misfit), "residual": float(residual), "iterations": used})


def main():
    args = parse_args()
    torch.manual_seed(0)
    device = torch.device(args.device)
    count, iterations = (24576, 48) if device.type == "cuda" else (512, 12)
    points = torch.rand(count, 3, dtype=torch.float64, device=device)
    system = KernelSystem(points, length_scale=0.25, noise=1e-3)
    observe = Observations(points)
    journal = Journal()

    def step():
        y = observe()
        weights, residual, used = conjugate_gradient(system, y, torch.zeros_like(y), iterations,
                                                     check_every=12, tolerance=1e-11)
        misfit = torch.dot(y, weights) / count
        journal.add(misfit, residual, used)

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
