"""Gaussian-process surrogate for tabular data: posterior over hyperparameters by slice sampling."""
import argparse
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gg05"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 120
WARMUP = 3
LADDER = (0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


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


def synthetic_table(rows, columns, device):
    g = torch.Generator().manual_seed(0)
    x = torch.rand(rows, columns, generator=g)
    x[:, columns // 2:] = (x[:, columns // 2:] * 4).round() / 4
    x[rows // 2:] = x[: rows - rows // 2] + 1e-3 * torch.randn(rows - rows // 2, columns, generator=g)
    y = torch.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] - (x[:, 3] - 0.5).abs() + 0.01 * torch.randn(rows, generator=g)
    y = (y - y.mean()) / y.std()
    return x.to(device), y.to(device)


class Kernel:
    """ARD squared exponential plus a linear trend."""

    def __init__(self, x):
        self.x = x

    def __call__(self, log_scale, log_amp):
        z = self.x / log_scale.exp()
        sq = z.square().sum(-1)
        d2 = torch.addmm(sq[:, None] + sq[None, :], z, z.T, alpha=-2).clamp_min_(0)
        k = torch.exp(d2.mul_(-0.5)).mul_(log_amp.exp())
        return k.addmm_(self.x, self.x.T, alpha=0.1)


class Factor:
    """Lower factor of a covariance, adding to the diagonal where rounding makes that necessary."""

    def __init__(self, keep):
        self.keep = keep
        self.level = 0

    def __call__(self, k):
        for level in range(self.level, len(LADDER)):
            a = k if LADDER[level] == 0 else k + torch.diag_embed(torch.full_like(k[0], LADDER[level]))
            lower, info = torch.linalg.cholesky_ex(a)
            if not info.any():
                if self.keep:
                    self.level = level
                return lower
        raise RuntimeError("covariance is not positive definite")


class Surrogate:
    def __init__(self, x, y, keep):
        self.x, self.y = x, y
        self.kernel = Kernel(x)
        self.factor = Factor(keep)

    def unpack(self, theta):
        return theta[:-1] * 0.2, theta[-1] * 0.2

    def log_density(self, theta):
        lower = self.factor(self.kernel(*self.unpack(theta)))
        w = torch.linalg.solve_triangular(lower, self.y[:, None], upper=False)
        return -0.5 * w.square().sum() - lower.diagonal().log().sum() - 0.5 * len(self.y) * math.log(2 * math.pi)


class SliceSampler:
    """Elliptical slice sampling under a unit normal prior."""

    def __init__(self, target, dim, device, tries=4):
        self.target, self.tries, self.device = target, tries, device
        self.theta = torch.zeros(dim, device=device)
        self.value = target(self.theta)
        self.trace = []

    def advance(self):
        nu = torch.randn_like(self.theta)
        threshold = self.value + torch.rand((), device=self.device).log()
        angles = torch.rand(self.tries) * 2 * math.pi
        angle, low, high = angles[0], angles[0] - 2 * math.pi, angles[0]
        for _ in range(self.tries):
            proposal = self.theta * torch.cos(angle) + nu * torch.sin(angle)
            value = self.target(proposal)
            if value > threshold:
                self.theta, self.value = proposal, value
                break
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = low + (high - low) * torch.rand(())
        self.trace.append(self.theta)


class Study:
    def __init__(self, args, device):
        rows = 6144 if device.type == "cuda" else 512
        x, y = synthetic_table(rows, 12, device)
        self.model = Surrogate(x, y, keep=args.variant == "fixed")
        self.chains = [SliceSampler(self.model.log_density, 13, device) for _ in range(2)]

    @torch.no_grad()
    def step(self):
        for chain in self.chains:
            chain.advance()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    run_loop(args, device, Study(args, device).step)


if __name__ == "__main__":
    main()
