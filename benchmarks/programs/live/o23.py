"""Probabilistic multi-horizon demand forecasting with a deep recurrent network (teacher forced)."""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
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


class Forecaster(nn.Module):
    def __init__(self, series, features, hidden, layers):
        super().__init__()
        self.identity = nn.Embedding(series, 64)
        self.rnn = nn.LSTM(features + 64, hidden, layers)
        self.head = nn.Linear(hidden, 2)

    def forward(self, x, ids):
        who = self.identity(ids).unsqueeze(0).expand(x.shape[0], -1, -1)
        h, _ = self.rnn(torch.cat([x, who], dim=2))
        return self.head(h).float().unbind(-1)


def gaussian_nll(mean, raw, y):
    scale = F.softplus(raw) + 1e-3
    return (torch.log(scale) + 0.5 * ((y - mean) / scale).square()).mean()


def main():
    args = parse_args(["healthy"], 90)
    device = torch.device(args.device)
    gpu = device.type == "cuda"
    torch.manual_seed(0)
    length, batch, features, hidden, layers = (256, 512, 64, 2048, 3) if gpu else (12, 8, 8, 16, 2)
    series = 50_000 if gpu else 100
    model = Forecaster(series, features, hidden, layers).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=gpu)
    pool = [(torch.randn(length, batch, features, device=device),
             torch.randint(0, series, (batch,), device=device),
             torch.randn(length, batch, device=device)) for _ in range(4)]
    count = 0

    def step():
        nonlocal count
        x, ids, y = pool[count % len(pool)]
        count += 1
        with torch.autocast(device.type, dtype=torch.bfloat16):
            mean, raw = model(x, ids)
        loss = gaussian_nll(mean, raw, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        opt.step()

    run_loop("o23", args, step)


if __name__ == "__main__":
    main()
