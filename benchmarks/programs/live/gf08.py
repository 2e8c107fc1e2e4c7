"""Searches kernel hyperparameters of an exact Gaussian process by its marginal likelihood."""
import argparse
import json
import math
import statistics
import time

import torch

PROGRAM = "gf08"
CHOICES = ["healthy"]
DEFAULT_STEPS = 400
MAX_SECONDS = 42.0
WARMUP = 2


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=MAX_SECONDS)
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

class Dataset:
    def __init__(self, n, features, outputs, device):
        g = torch.Generator().manual_seed(4)
        x = torch.rand(n, features, generator=g, dtype=torch.float64)
        w = torch.randn(features, outputs, generator=g, dtype=torch.float64)
        y = torch.sin(3 * x @ w) + 1e-3 * torch.randn(n, outputs, generator=g, dtype=torch.float64)
        self.x = x.to(device)
        self.y = (y - y.mean(0)).to(device)


class ExactMarginal:
    def __init__(self, data):
        self.data = data
        n = data.x.shape[0]
        self.gram = torch.empty(n, n, dtype=torch.float64, device=data.x.device)

    def covariance(self, lengthscale, noise):
        z = self.data.x / lengthscale
        half = -0.5 * z.pow(2).sum(-1, keepdim=True)
        one = torch.ones_like(half)
        left = torch.cat([z, half, one], dim=-1)
        right = torch.cat([z, one, half], dim=-1)
        torch.mm(left, right.T, out=self.gram)
        self.gram.exp_()
        self.gram.diagonal().add_(noise)
        return self.gram

    def __call__(self, lengthscale, noise):
        k = self.covariance(lengthscale, noise)
        factor, info = torch.linalg.cholesky_ex(k)
        if info.item() != 0:
            return -math.inf
        white = torch.linalg.solve_triangular(factor, self.data.y, upper=False)
        n, m = self.data.y.shape
        value = -0.5 * white.pow(2).sum() - m * factor.diagonal().log().sum() - 0.5 * n * m * math.log(2 * math.pi)
        return value.item()


class Search:
    def __init__(self, objective, device, seed=9):
        self.objective, self.device = objective, device
        self.generator = torch.Generator().manual_seed(seed)
        self.best = (-math.inf, 0.5, 1e-6)
        self.history = []

    def propose(self):
        jitter = torch.randn(2, generator=self.generator).tolist()
        _, scale, noise = self.best
        scale = min(max(scale * math.exp(0.3 * jitter[0]), 0.05), 1.5)
        noise = min(max(noise * math.exp(0.5 * jitter[1]), 1e-6), 1e-2)
        return scale, noise

    def step(self):
        scale, noise = self.propose()
        value = self.objective(scale, noise)
        synchronize(self.device)
        self.history.append({"scale": scale, "noise": noise, "value": value})
        if value > self.best[0]:
            self.best = (value, scale, noise)
        ranked = sorted(self.history, key=lambda r: r["value"], reverse=True)[:5]
        return json.dumps(ranked)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    n = 300 if device.type == "cpu" else 24_576
    search = Search(ExactMarginal(Dataset(n, 12, 32, device)), device)
    run_loop(args, device, search.step)


if __name__ == "__main__":
    main()
