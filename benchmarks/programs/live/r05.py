"""Text-line recognition service: batches of line crops through a convolutional encoder and CTC."""
import argparse
import json
import os
import random
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def parse_args(variants, default_steps, cpu_steps=4):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=None)
    ap.add_argument("--max-seconds", type=float, default=1e9)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    if args.steps is None:
        args.steps = default_steps if args.device == "cuda" else cpu_steps
    return args


def run_loop(args, step, warmup):
    cuda = args.device == "cuda"
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    count = 0
    for _ in range(warmup):
        step(count)
        count += 1
    sync()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step(count)
        count += 1
        marks.append(time.perf_counter())
        if marks[-1] - marks[0] > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - marks[0]
    laps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": os.path.splitext(os.path.basename(__file__))[0],
        "variant": args.variant,
        "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 4),
        "step_ms_median": round(1e3 * statistics.median(laps), 4),
    }), flush=True)
    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
        with profile(activities=acts, record_shapes=True, with_stack=True, with_modules=True,
                     schedule=schedule(wait=0, warmup=2, active=4, repeat=1),
                     on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                step(count)
                count += 1
                prof.step()
        sync()


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a = nn.Conv2d(width, width, 3, padding=1)
        self.b = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return F.relu(x + self.b(F.relu(self.a(x))))


class LineEncoder(nn.Module):
    def __init__(self, widths, repeats, symbols):
        super().__init__()
        layers = [nn.Conv2d(3, widths[0], 3, padding=1), nn.ReLU()]
        strides = [(2, 2), (2, 2), (2, 1)]
        for before, width, stride in zip(widths, widths[1:], strides):
            layers += [nn.Conv2d(before, width, 3, stride=stride, padding=1), nn.ReLU()]
            layers += [Residual(width) for _ in range(repeats)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], symbols)

    def forward(self, x):
        return self.head(self.body(x).mean(2).transpose(1, 2))


def longest(widths):
    return max(widths)


def next_grid(widths, grid=256):
    return -(-max(widths) // grid) * grid


def collate(lines, target, pin):
    batch = torch.full((len(lines), 1, lines[0].shape[0], target), 255, dtype=torch.uint8, pin_memory=pin)
    for slot, line in zip(batch, lines):
        slot[0, :, :line.shape[1]] = line
    return batch


def greedy(path, alphabet):
    keep = np.ones(path.shape, dtype=bool)
    keep[:, 1:] = path[:, 1:] != path[:, :-1]
    keep &= path != 0
    return [alphabet[row[k]].tobytes().decode("latin1") for row, k in zip(path, keep)]


class Recognizer:
    def __init__(self, device, target_width):
        self.device, self.target_width = device, target_width
        self.cuda = device == "cuda"
        if self.cuda:
            self.batch, self.height, self.low, self.high = 48, 64, 320, 1600
            widths, repeats, symbols = (64, 128, 256, 512), 2, 96
        else:
            self.batch, self.height, self.low, self.high = 3, 16, 40, 120
            widths, repeats, symbols = (4, 8, 8, 16), 1, 20
        self.alphabet = np.arange(32, 32 + symbols, dtype=np.uint8)
        dtype = torch.float16 if self.cuda else torch.float32
        self.model = LineEncoder(widths, repeats, symbols).to(device, dtype, memory_format=torch.channels_last).eval()
        self.dtype = dtype
        self.rng = random.Random(7)
        self.page = torch.randint(0, 256, (self.height, self.high * 2), dtype=torch.uint8)

    def request(self):
        column = self.rng.randrange(self.low, self.high, 4)
        sizes = [column] + [self.rng.randrange(column // 2, column, 4) for _ in range(self.batch - 1)]
        starts = [self.rng.randrange(self.high) for _ in sizes]
        return [self.page[:, s:s + w] for s, w in zip(starts, sizes)]

    def step(self, i):
        lines = self.request()
        target = self.target_width([line.shape[1] for line in lines])
        batch = collate(lines, target, self.cuda).to(self.device, non_blocking=True)
        pixels = batch.to(self.dtype).div_(127.5).sub_(1.0)
        pixels = pixels.expand(-1, 3, -1, -1).contiguous(memory_format=torch.channels_last)
        path = self.model(pixels).argmax(-1).to(torch.int16).cpu().numpy()
        self.texts = greedy(path, self.alphabet)


def main():
    args = parse_args(["slow", "fixed"], 75)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    target_width = {"slow": longest, "fixed": next_grid}[args.variant]
    with torch.inference_mode():
        run_loop(args, Recognizer(args.device, target_width).step, warmup=16)


if __name__ == "__main__":
    main()
