"""Training a Lipschitz-bounded neural ODE (fixed-step RK4) on trajectories of a dynamical system."""
import argparse
import contextlib
import json
import statistics
import time

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm

def parse_args(variants, default_steps):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=default_steps)
    p.add_argument("--max-seconds", type=float, default=60.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def run_loop(name, args, step):
    device = torch.device(args.device)

    def sync():
        if device.type == "cuda":
            torch.cuda.synchronize()

    for _ in range(5 if device.type == "cuda" else 1):
        step()
    sync()
    durations = []
    start = time.perf_counter()
    for _ in range(args.steps):
        tick = time.perf_counter()
        step()
        now = time.perf_counter()
        durations.append(now - tick)
        if now - start > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - start
    print(json.dumps({
        "program": name,
        "variant": args.variant,
        "steps": len(durations),
        "step_ms_mean": round(1e3 * total / len(durations), 3),
        "step_ms_median": round(1e3 * statistics.median(durations), 3),
    }), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
            record_shapes=True, with_stack=True, with_modules=True,
        ) as prof:
            for _ in range(6):
                step()
                prof.step()
            sync()


class VectorField(nn.Module):
    def __init__(self, state, hidden, depth):
        super().__init__()
        widths = [state] + [hidden] * depth
        self.time = nn.Parameter(torch.zeros(hidden))
        self.layers = nn.ModuleList(
            [spectral_norm(nn.Linear(a, b)) for a, b in zip(widths[:-1], widths[1:])])
        self.out = nn.Linear(hidden, state)

    def forward(self, t, y):
        h = torch.tanh(self.layers[0](y) + t * self.time)
        for layer in self.layers[1:]:
            h = torch.tanh(layer(h))
        return self.out(h)


def rk4(field, y, t0, t1, n):
    h = (t1 - t0) / n
    for i in range(n):
        t = t0 + i * h
        k1 = field(t, y)
        k2 = field(t + h / 2, y + h / 2 * k1)
        k3 = field(t + h / 2, y + h / 2 * k2)
        k4 = field(t + h, y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


def integrate(field, y0, n, scope):
    with scope():
        return rk4(field, y0, 0.0, 1.0, n)


def main():
    args = parse_args(["slow", "fixed"], 200)
    scope = {"slow": contextlib.nullcontext, "fixed": parametrize.cached}[args.variant]
    device = torch.device(args.device)
    gpu = device.type == "cuda"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    batch, state, hidden, depth, n = (4096, 256, 2048, 3, 8) if gpu else (32, 8, 32, 3, 2)
    field = VectorField(state, hidden, depth).to(device)
    opt = torch.optim.Adam(field.parameters(), lr=1e-3, fused=gpu)
    start = torch.randn(batch, state, device=device)
    rotation = torch.linalg.qr(torch.randn(state, state, device=device))[0]
    target = start @ rotation

    def step():
        opt.zero_grad(set_to_none=True)
        prediction = integrate(field, start, n, scope)
        loss = (prediction - target).square().mean()
        loss.backward()
        opt.step()

    run_loop("o14", args, step)


if __name__ == "__main__":
    main()
