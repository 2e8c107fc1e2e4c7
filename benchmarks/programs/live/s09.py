"""Probabilistic load forecasting: two wide LSTM layers over hourly windows, nine quantiles at every hour."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn


class Forecaster(nn.Module):
    def __init__(self, features, hidden, layers, quantiles):
        super().__init__()
        self.cell = nn.LSTM(features, hidden, layers)
        self.head = nn.Linear(hidden, quantiles)

    def forward(self, x):
        return self.head(self.cell(x)[0])


def pinball(guess, truth, levels):
    gap = truth[..., None] - guess.float()
    return torch.maximum(levels * gap, (levels - 1) * gap).mean()


def build(args, device):
    tiny = device.type == "cpu"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    hours, batch, features, hidden = (12, 4, 8, 16) if tiny else (240, 512, 64, 2048)
    levels = torch.linspace(0.1, 0.9, 9, device=device)
    model = Forecaster(features, hidden, 2, 9).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0, enabled=not tiny)
    half = torch.bfloat16 if tiny else torch.float16
    pool = []
    for _ in range(4):
        x, y = torch.randn(hours, batch, features), torch.randn(hours, batch)
        pool.append((x, y) if tiny else (x.pin_memory(), y.pin_memory()))
    state = {"n": 0}

    def step():
        x, y = (t.to(device, non_blocking=True) for t in pool[state["n"] % len(pool)])
        state["n"] += 1
        with torch.autocast(device.type, dtype=half):
            guess = model(x)
        loss = pinball(guess, y, levels)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad(set_to_none=True)
        return loss

    return step


def measure(program, args, step, device):
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for _ in range(args.warmup):
        step()
    sync()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step()
        marks.append(time.perf_counter())
        if args.max_seconds and marks[-1] - marks[0] > args.max_seconds:
            break
    sync()
    end = time.perf_counter()
    gaps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": program, "variant": args.variant, "steps": len(gaps),
        "step_ms_mean": round((end - marks[0]) * 1e3 / len(gaps), 3),
        "step_ms_median": round(statistics.median(gaps) * 1e3, 3),
    }), flush=True)
    if args.trace:
        acts = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            acts.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(
            activities=acts, record_shapes=True, with_stack=True, with_modules=True,
            schedule=torch.profiler.schedule(wait=0, warmup=2, active=4, repeat=1),
            on_trace_ready=lambda p: p.export_chrome_trace(args.trace),
        ) as prof:
            for _ in range(6):
                step()
                prof.step()


def parse_args(variants, steps, tiny_steps=4, warmup=5):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    args = p.parse_args()
    if args.steps is None:
        args.steps = steps[args.variant] if args.device == "cuda" else tiny_steps
    args.warmup = warmup if args.device == "cuda" else 1
    return args


if __name__ == "__main__":
    args = parse_args(["healthy"], {"healthy": 110})
    device = torch.device(args.device)
    measure("s09", args, build(args, device), device)
