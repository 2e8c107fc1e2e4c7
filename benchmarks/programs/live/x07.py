"""Point generator fitted with the sliced Wasserstein distance over fresh random directions."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def run_steps(name, args, step, device, warmup=5):
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for i in range(warmup):
        step(i)
    sync()
    laps = []
    begin = last = time.perf_counter()
    for i in range(args.steps):
        step(warmup + i)
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and now - begin > args.max_seconds:
            break
    sync()
    mean = (time.perf_counter() - begin) / len(laps)
    print(json.dumps({"program": name, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(mean * 1e3, 3),
                      "step_ms_median": round(statistics.median(laps) * 1e3, 3)}), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                    schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                    on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for i in range(6):
                step(warmup + len(laps) + i)
                prof.step()


def parse_args(variants, steps):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=steps)
    ap.add_argument("--max-seconds", type=float, default=0.0)
    ap.add_argument("--trace", default=None)
    return ap.parse_args()


def directions(count, dim, device):
    return F.normalize(torch.randn(count, dim, device=device), dim=1)


def sliced_distance(fake, real, count):
    theta = directions(count, fake.shape[1], fake.device)
    with torch.no_grad():
        want = torch.sort(theta @ real.t(), dim=1).values
    have = torch.sort(theta @ fake.t(), dim=1).values
    return F.mse_loss(have, want)


def main():
    args = parse_args(["healthy"], 350)
    device = torch.device(args.device)
    big = args.device == "cuda"
    points, dim, noise, width, count = (131072, 64, 128, 1024, 256) if big else (256, 8, 8, 32, 16)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    net = nn.Sequential(nn.Linear(noise, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, dim)).to(device)
    opt = torch.optim.Adam(net.parameters(), lr=3e-4, fused=big)
    centers = 3 * torch.randn(32, dim, device=device)

    def step(i):
        real = centers[torch.randint(32, (points,), device=device)] + 0.3 * torch.randn(points, dim, device=device)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            fake = net(torch.randn(points, noise, device=device))
        loss = sliced_distance(fake.float(), real, count)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()

    run_steps("x07", args, step, device)


if __name__ == "__main__":
    main()
