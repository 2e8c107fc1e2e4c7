"""Physics-informed network for a 2-D reaction-diffusion equation; residual needs u_t, u_xx, u_yy.

Hidden products run in TF32; second derivatives of the network lose the residual in 16 bit.
"""
import argparse
import json
import statistics
import time

import torch
from torch import nn

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


class Field(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        sizes = [3] + [width] * depth
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:])])
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.out(x)


def residual(field, points, diffusivity):
    points = points.requires_grad_(True)
    u = field(points)
    first = torch.autograd.grad(u.sum(), points, create_graph=True)[0]
    u_xx = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)[0][:, 0]
    u_yy = torch.autograd.grad(first[:, 1].sum(), points, create_graph=True)[0][:, 1]
    u = u[:, 0]
    return first[:, 2] - diffusivity * (u_xx + u_yy) - u * (1 - u * u)


def main():
    args = parse_args(["healthy"], 120)
    device = torch.device(args.device)
    gpu = device.type == "cuda"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    width, depth, inner, edge = (4096, 5, 8192, 2048) if gpu else (32, 3, 64, 16)
    field = Field(width, depth).to(device)
    opt = torch.optim.Adam(field.parameters(), lr=1e-4, fused=gpu)

    def step():
        inside = torch.rand(inner, 3, device=device) * 2 - 1
        border = torch.rand(edge, 3, device=device) * 2 - 1
        border[:, 2] = 0.0
        wanted = torch.sin(torch.pi * border[:, :1]) * torch.sin(torch.pi * border[:, 1:2])
        loss = residual(field, inside, 0.01).square().mean()
        loss = loss + 10.0 * (field(border) - wanted).square().mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()

    run_loop("o22", args, step)


if __name__ == "__main__":
    main()
