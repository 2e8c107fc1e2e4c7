"""Binaural rendering of a moving orchestra: block convolution of many sources with their room responses."""
import argparse
import json
import statistics
import time
import math

import torch

PROGRAM = "gj07"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 2500
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def room_responses(sources, taps, device):
    """Exponentially decaying noise with a direct peak, for both ears."""
    decay = torch.exp(-torch.arange(taps, device=device) / (0.2 * taps))
    h = torch.randn(2, sources, taps, device=device) * decay * 0.05
    h[..., 0] = 1.0
    return h


def main():
    args = parse_args()
    device = torch.device(args.device)
    big = device.type == "cuda"
    torch.manual_seed(0)
    sources, block, taps, rate = (640, 131072, 16384, 48000) if big else (4, 1024, 256, 48000)

    length = block + taps - 1
    if args.variant == "fixed":
        length = length + (-length) % 512

    responses = torch.fft.rfft(room_responses(sources, taps, device), n=length)
    pitch = torch.empty(sources, 1, device=device).uniform_(60, 2000)
    angle = torch.rand(sources, device=device) * 2 * math.pi
    speed = torch.randn(sources, device=device) * 0.2
    clock = torch.arange(block, device=device) / rate
    tail = torch.zeros(2, taps - 1, device=device)
    level = torch.zeros((), device=device)
    peak = 0.0

    profiler = None
    laps, start, last, done = [], None, None, 0
    total_steps = WARMUP + args.steps
    index = 0
    while index < total_steps or (profiler is not None):
        if index == WARMUP:
            if big:
                torch.cuda.synchronize()
            start = last = time.perf_counter()

        # the sources play
        t = clock + (index % 64) * block / rate
        dry = torch.sin(2 * math.pi * pitch * t)
        dry *= torch.exp(-3.0 * (t * 2 % 1.0))

        # and move round the head
        angle = angle + speed * (block / rate)
        pan = torch.stack([0.5 + 0.5 * torch.sin(angle), 0.5 - 0.5 * torch.sin(angle)])

        spectrum = torch.fft.rfft(dry, n=length)
        ears = torch.stack([(spectrum * responses[e]).T @ pan[e].to(spectrum.dtype) for e in range(2)])
        wet = torch.fft.irfft(ears, n=length)[:, :block + taps - 1]

        out = wet[:, :block].clone()
        out[:, :taps - 1] += tail
        tail = wet[:, block:block + taps - 1].clone()
        level = 0.9 * level + 0.1 * out.square().mean()
        if index % 20 == 19:
            peak = max(peak, out.abs().max().item())

        if profiler is not None:
            done += 1
            profiler.step()
            if done == 6:
                profiler.__exit__(None, None, None)
                return
            continue
        index += 1
        if index > WARMUP:
            now = time.perf_counter()
            laps.append((now - last) * 1e3)
            last = now
            if args.max_seconds is not None and now - start > args.max_seconds:
                index = total_steps
        if index == total_steps:
            if big:
                torch.cuda.synchronize()
            total = (time.perf_counter() - start) * 1e3
            print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                              "step_ms_mean": round(total / len(laps), 3),
                              "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
            print(f"# level {level.item():.4f} peak {peak:.3f}", flush=True)
            if args.trace:
                activities = [torch.profiler.ProfilerActivity.CPU]
                if big:
                    activities.append(torch.profiler.ProfilerActivity.CUDA)
                profiler = torch.profiler.profile(
                    activities=activities, record_shapes=True, with_stack=True,
                    schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                    on_trace_ready=lambda p: p.export_chrome_trace(args.trace))
                profiler.__enter__()


if __name__ == "__main__":
    main()
