"""Probabilistic regression of joint trajectories: a residual network predicts the mean and full covariance of 32 targets."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import MultivariateNormal

NAME = "t09"
STEPS = 320
WARMUP = 4


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


def from_covariance(mean, factor):
    return MultivariateNormal(mean, covariance_matrix=factor @ factor.mT)


def from_factor(mean, factor):
    return MultivariateNormal(mean, scale_tril=factor)


class JointRegressor(nn.Module):
    def __init__(self, inputs, width, depth, targets, family):
        super().__init__()
        self.targets, self.family = targets, family
        self.trunk = nn.Sequential(nn.Linear(inputs, width), *(Residual(width) for _ in range(depth)), nn.LayerNorm(width))
        self.mean = nn.Linear(width, targets)
        self.spread = nn.Linear(width, targets)
        self.coupling = nn.Linear(width, targets * targets)
        nn.init.normal_(self.coupling.weight, std=1e-3)

    def forward(self, x):
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            h = self.trunk(x)
            mean, spread, coupling = self.mean(h), self.spread(h), self.coupling(h)
        n = self.targets
        factor = coupling.float().view(-1, n, n).tril(-1) + torch.diag_embed(F.softplus(spread.float()) + 0.05)
        return self.family(mean.float(), factor)


VARIANTS = {"slow": from_covariance, "fixed": from_factor}


def build(device, family):
    gpu = device.type == "cuda"
    inputs, width, depth, targets, batch = (256, 1024, 4, 32, 49152) if gpu else (8, 32, 2, 4, 16)
    model = JointRegressor(inputs, width, depth, targets, family).to(device)
    optim = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
    pool = 16
    xs = torch.randn(pool, batch, inputs, device=device)
    ys = torch.tanh(xs[..., :targets] if targets <= inputs else xs) + 0.1 * torch.randn(pool, batch, targets, device=device)
    state = {"at": 0}

    def step():
        i = state["at"] % pool
        state["at"] += 1
        loss = -model(xs[i]).log_prob(ys[i]).mean()
        optim.zero_grad()
        loss.backward()
        optim.step()

    return step


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
