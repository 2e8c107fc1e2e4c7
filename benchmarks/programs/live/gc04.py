"""Trains an image model from a streaming source of packed frames, read by loader workers."""
import argparse
import json
import zlib
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

PROGRAM = "gc04"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 200
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


def make_archive(count, side):
    """Packed frames as they lie in a shard: (compressed bytes, shape, label)."""
    rng = np.random.default_rng(0)
    yy, xx = np.mgrid[0:side, 0:side].astype(np.float32) / side
    archive = []
    for i in range(count):
        a, b, c = rng.uniform(2, 14, 3)
        base = np.stack([np.sin(a * xx + b * yy), np.cos(b * xx * yy), np.sin(c * (xx - yy))], -1) * 90 + 128
        noise = rng.integers(0, 12, (side, side, 1), dtype=np.int16)
        frame = np.clip(base + noise, 0, 255).astype(np.uint8)
        archive.append((zlib.compress(frame.tobytes(), 1), frame.shape, i % 100))
    return archive


def unpack(record):
    blob, shape, label = record
    return np.frombuffer(zlib.decompress(blob), np.uint8).reshape(shape), label


def resized_crop(frame, rng, out):
    side = frame.shape[0]
    crop = int(side * rng.uniform(0.5, 1.0))
    top, left = rng.integers(0, side - crop + 1, 2)
    grid = np.linspace(0, crop - 1, out, dtype=np.float32)
    lo = grid.astype(np.int64)
    hi = np.minimum(lo + 1, crop - 1)
    frac = (grid - lo).astype(np.float32)
    part = frame[top:top + crop, left:left + crop].astype(np.float32)
    rows = part[lo] * (1 - frac)[:, None, None] + part[hi] * frac[:, None, None]
    return rows[:, lo] * (1 - frac)[None, :, None] + rows[:, hi] * frac[None, :, None]


MEAN = np.array([123.7, 116.3, 103.5], np.float32)
STD = np.array([58.4, 57.1, 57.4], np.float32)


class Source:
    def __init__(self, archive, seed):
        self.archive, self.seed = archive, seed

    def __call__(self):
        epoch = 0
        while True:
            order = np.random.default_rng(self.seed + epoch).permutation(len(self.archive))
            for i in order:
                yield int(i) + epoch * len(self.archive), self.archive[i]
            epoch += 1


class Decode:
    def __init__(self, out):
        self.out = out

    def __call__(self, stream):
        for key, record in stream:
            rng = np.random.default_rng(key)
            frame, label = unpack(record)
            image = resized_crop(frame, rng, self.out)
            if rng.random() < 0.5:
                image = image[:, ::-1]
            image = (image - MEAN) / STD
            yield key, (np.ascontiguousarray(image.transpose(2, 0, 1)), label)


class PerWorker:
    def __call__(self, stream):
        info = get_worker_info()
        me, all_of_them = (info.id, info.num_workers) if info else (0, 1)
        for position, item in enumerate(stream):
            if position % all_of_them == me:
                yield item


class Shuffle:
    def __init__(self, size):
        self.size = size

    def __call__(self, stream):
        rng = np.random.default_rng(17)
        held = []
        for item in stream:
            if len(held) < self.size:
                held.append(item)
                continue
            slot = int(rng.integers(self.size))
            out, held[slot] = held[slot], item
            yield out


class Pipeline(IterableDataset):
    def __init__(self, source, *stages):
        self.source, self.stages = source, stages

    def __iter__(self):
        stream = self.source()
        for stage in self.stages:
            stream = stage(stream)
        for _, (image, label) in stream:
            yield torch.from_numpy(image), label


class Stage(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.mix = nn.Conv2d(dim, dim, 3, padding=1)
        self.norm = nn.GroupNorm(8, dim)
        self.up, self.down = nn.Conv2d(dim, dim * 4, 1), nn.Conv2d(dim * 4, dim, 1)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(self.mix(x)))))


def build_model(dim, depth, classes):
    return nn.Sequential(nn.Conv2d(3, dim, 8, 8), *[Stage(dim) for _ in range(depth)],
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(dim, classes))


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    big = device.type == "cuda"
    side, out, count, batch, dim, depth, workers = (288, 192, 64, 24, 512, 20, 6) if big else (96, 64, 40, 4, 32, 2, 2)
    source = Source(make_archive(count, side), seed=100)
    stages = [Decode(out), PerWorker(), Shuffle(8)]
    if args.variant == "fixed":
        stages = [PerWorker(), Decode(out), Shuffle(8)]
    loader = DataLoader(Pipeline(source, *stages), batch_size=batch, num_workers=workers, pin_memory=big,
                        prefetch_factor=2)
    model = build_model(dim, depth, 100).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    batches = iter(loader)
    running = torch.zeros((), device=device)

    def step():
        images, labels = next(batches)
        images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
        labels = labels.to(device, non_blocking=True)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        running.mul_(0.98).add_(loss.detach(), alpha=0.02)

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
