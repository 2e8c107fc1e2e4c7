"""Clip classifier: a convolutional frame encoder followed by a recurrent cell with an orthogonal transition."""
import argparse
import json
import contextlib
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal

PROGRAM = "gc07"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 320
DEFAULT_SECONDS = 50.0
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=DEFAULT_SECONDS)
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


class FrameEncoder(nn.Module):
    def __init__(self, width, dim):
        super().__init__()
        def unit(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True),
                                 nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True))
        self.body = nn.Sequential(unit(3, width), unit(width, 2 * width), unit(2 * width, 4 * width))
        self.proj = nn.Linear(4 * width, dim)

    def forward(self, clips):
        b, t = clips.shape[:2]
        x = clips.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        x = self.body(x).mean((2, 3))
        return self.proj(x).view(b, t, -1)


class ModReLU(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return torch.sign(x) * F.relu(x.abs() + self.bias)


class OrthogonalCell(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.transition = orthogonal(nn.Linear(dim, dim, bias=False), orthogonal_map="cayley")
        self.act = ModReLU(dim)

    def forward(self, u, h):
        return self.act(u + self.transition(h))


class Reader(nn.Module):
    """Unrolls the cell over time and returns the gated average of its states."""

    def __init__(self, dim):
        super().__init__()
        self.cell = OrthogonalCell(dim)
        self.gate = nn.Linear(dim, 1)
        self.dim = dim

    def forward(self, inputs):
        h = inputs.new_zeros(inputs.size(0), self.dim)
        states = []
        for t in range(inputs.size(1)):
            h = self.cell(inputs[:, t], h)
            states.append(h)
        states = torch.stack(states, 1)
        return (torch.softmax(self.gate(states), 1) * states).sum(1)


class ClipClassifier(nn.Module):
    def __init__(self, width, dim, classes):
        super().__init__()
        self.encoder = FrameEncoder(width, dim)
        self.reader = Reader(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, clips):
        with torch.autocast(clips.device.type, dtype=torch.bfloat16):
            frames = self.encoder(clips)
        return self.head(self.reader(frames.float()))


class Clips:
    def __init__(self, count, frames, side, classes, pin):
        g = torch.Generator().manual_seed(9)
        self.clips = torch.randint(0, 256, (count, frames, 3, side, side), generator=g, dtype=torch.uint8)
        self.labels = torch.randint(0, classes, (count,), generator=g)
        if pin:
            self.clips, self.labels = self.clips.pin_memory(), self.labels.pin_memory()

    def epoch(self, batch):
        while True:
            for lo in range(0, len(self.clips) - batch + 1, batch):
                yield self.clips[lo:lo + batch], self.labels[lo:lo + batch]


def train_batch(model, optimizer, clips, labels, device, scope):
    clips = clips.to(device, non_blocking=True).float().div_(255).sub_(0.5)
    labels = labels.to(device, non_blocking=True)
    with scope():
        logits = model(clips)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    return loss.detach(), (logits.detach().argmax(1) == labels).float().mean()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(4)
    torch.backends.cudnn.benchmark = True
    big = device.type == "cuda"
    frames, side, width, dim, batch = (32, 96, 64, 320, 48) if big else (6, 24, 8, 32, 4)
    model = ClipClassifier(width, dim, 50).to(device)
    model.encoder.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=big)
    batches = Clips(4 * batch, frames, side, 50, big).epoch(batch)
    scope = parametrize.cached if args.variant == "fixed" else contextlib.nullcontext
    meter = torch.zeros(2, device=device)

    def step():
        loss, accuracy = train_batch(model, optimizer, *next(batches), device, scope)
        meter.mul_(0.95).add_(torch.stack([loss, accuracy]), alpha=0.05)

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
