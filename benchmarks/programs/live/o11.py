"""Exact Gaussian-process regression on one long, nearly noise-free sensor series: marginal likelihood, analytic gradient.

Everything is in double precision: with a smooth kernel and a noise of 1e-6 the factorisation fails in single precision.
"""
import argparse
import json
import math
import statistics
import time

import torch

PROGRAM = "o11"
CHOICES = ["healthy"]
DEFAULT_STEPS = 50
WARMUP = 3


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


class NegLogLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(ctx, log_scale, log_length, log_noise, dist2, y):
        scale, noise = log_scale.exp(), log_noise.exp()
        kernel = dist2.mul(-0.5 * torch.exp(-2 * log_length)).exp_().mul_(scale)
        kernel.diagonal().add_(noise)
        factor = torch.linalg.cholesky(kernel)
        alpha = torch.cholesky_solve(y[:, None], factor)
        inverse = torch.cholesky_inverse(factor).mT
        n = y.shape[0]
        value = 0.5 * (y @ alpha[:, 0]) + factor.diagonal().log().sum() + 0.5 * n * math.log(2 * math.pi)
        del factor
        weight = inverse.addr_(alpha[:, 0], alpha[:, 0], alpha=-1.0)
        trace = weight.diagonal().sum()
        weight.mul_(kernel)
        d_scale = 0.5 * (weight.sum() - noise * trace)
        d_length = 0.5 * torch.dot(weight.view(-1), dist2.view(-1)) * torch.exp(-2 * log_length)
        ctx.save_for_backward(d_scale, d_length, 0.5 * noise * trace)
        return value

    @staticmethod
    def backward(ctx, grad):
        d_scale, d_length, d_noise = ctx.saved_tensors
        return grad * d_scale, grad * d_length, grad * d_noise, None, None


class SensorGP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.log_scale = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.log_length = torch.nn.Parameter(torch.tensor(math.log(6.0), dtype=torch.float64))
        self.log_noise = torch.nn.Parameter(torch.tensor(math.log(1e-6), dtype=torch.float64))

    def forward(self, dist2, y):
        return NegLogLikelihood.apply(self.log_scale, self.log_length, self.log_noise, dist2, y)


def sensor_series(n, device):
    t = torch.arange(n, device=device, dtype=torch.float64)
    y = torch.sin(t / 17.0) + 0.5 * torch.sin(t / 5.3 + 1.0) + 0.25 * torch.sin(t / 101.0)
    return t, y + 1e-3 * torch.randn(n, device=device, dtype=torch.float64)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    n = 14336 if device.type == "cuda" else 128
    t, y = sensor_series(n, device)
    dist2 = (t[:, None] - t[None, :]).square_()
    model = SensorGP().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    log = []

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(dist2, y)
        loss.backward()
        value = float(loss.detach())
        if not math.isfinite(value):
            raise RuntimeError("the kernel matrix is not positive definite")
        log.append(value)
        optimizer.step()

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
