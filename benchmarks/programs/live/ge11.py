"""Exact Gaussian process regression in double precision, hyperparameters fitted by marginal likelihood."""
import argparse
import json
import statistics
import time
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "ge11"
CHOICES = ["healthy"]
DEFAULT_STEPS = 240
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


class Observations:
    """Noisy samples of a smooth field over a few standardized inputs."""

    def __init__(self, count, width, device):
        generator = torch.Generator(device=device).manual_seed(2)
        self.x = torch.randn(count, width, dtype=torch.float64, device=device, generator=generator)
        clean = torch.sin(self.x[:, 0] * 2) + 0.5 * self.x[:, 1] * self.x[:, 2]
        self.y = clean + 0.1 * torch.randn(count, dtype=torch.float64, device=device, generator=generator)


class ExactProcess:
    def __init__(self, data):
        self.data = data
        device = data.x.device
        self.log_length = torch.zeros((), dtype=torch.float64, device=device)
        self.log_signal = torch.zeros((), dtype=torch.float64, device=device)
        self.log_noise = torch.full((), -2.0, dtype=torch.float64, device=device)

    def parameters(self):
        return [self.log_length, self.log_signal, self.log_noise]

    def scaled_squares(self):
        x = self.data.x / self.log_length.exp()
        norms = x.square().sum(1)
        squares = torch.addmm(norms[:, None].expand(len(x), len(x)), x, x.T, alpha=-2.0)
        return squares.add_(norms).clamp_(min=0.0)

    def covariance(self, squares):
        return torch.exp(squares * -0.5).mul_(self.log_signal.mul(2).exp())

    def likelihood_and_gradients(self):
        """Negative log marginal likelihood with its closed-form derivatives."""
        y = self.data.y
        squares = self.scaled_squares()
        kernel = self.covariance(squares)
        noise = self.log_noise.mul(2).exp() + 1e-6
        kernel.diagonal().add_(noise)
        factor = torch.linalg.cholesky(kernel)
        kernel.diagonal().sub_(noise)
        weights = torch.cholesky_solve(y[:, None], factor)[:, 0]
        logdet = factor.diagonal().log().sum() * 2
        value = 0.5 * (y @ weights + logdet + len(y) * math.log(2 * math.pi))
        inner = torch.cholesky_inverse(factor)
        del factor
        inner.addr_(weights, weights, alpha=-1.0)
        d_noise = inner.diagonal().sum() * (noise - 1e-6)
        kernel.mul_(inner)
        d_signal = kernel.sum()
        d_length = 0.5 * torch.dot(kernel.view(-1), squares.view(-1))
        return value, [d_length, d_signal, d_noise]


class Fit:
    def __init__(self, cfg, device):
        self.process = ExactProcess(Observations(cfg["count"], cfg["width"], device))
        self.optimizer = torch.optim.Adam(self.process.parameters(), lr=0.01)
        self.history, self.best = [], float("inf")

    @torch.no_grad()
    def step(self):
        value, gradients = self.process.likelihood_and_gradients()
        for parameter, gradient in zip(self.process.parameters(), gradients):
            parameter.grad = gradient / len(self.process.data.y)
        self.optimizer.step()
        self.process.log_noise.clamp_(min=-4.0)
        current = value.item()
        self.best = min(self.best, current)
        self.history.append({"value": current, "length": self.process.log_length.exp().item(),
                             "signal": self.process.log_signal.exp().item(),
                             "noise": self.process.log_noise.exp().item()})


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    cfg = dict(count=12288, width=6) if device.type == "cuda" else dict(count=300, width=4)
    run_loop(args, device, Fit(cfg, device).step)


if __name__ == "__main__":
    main()
