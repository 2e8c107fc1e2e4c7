"""Classifies multispectral satellite tiles streamed from a compressed archive."""
import argparse
import json
import statistics
import time
import zlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

PROGRAM = "gd03"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1500
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=45.0)
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


class TileArchive:
    """Records in file order: (label, deflated uint16 bands)."""

    def __init__(self, count, bands, size, seed=11):
        rng = np.random.default_rng(seed)
        self.shape = (bands, size, size)
        self.records = []
        for _ in range(count):
            coarse = rng.integers(200, 3800, (bands, size // 8, size // 8))
            tile = np.repeat(np.repeat(coarse, 8, 1), 8, 2) + rng.integers(0, 64, self.shape)
            blob = zlib.compress(tile.astype("<u2").tobytes(), 1)
            self.records.append((int(rng.integers(10)), blob))

    def scan(self):
        while True:
            yield from self.records


class TileStream(IterableDataset):
    def __init__(self, archive, crop, variant):
        self.archive, self.crop, self.variant = archive, crop, variant
        bands = archive.shape[0]
        self.mean = np.linspace(1500, 2500, bands, dtype=np.float32)[:, None, None]
        self.scale = np.linspace(900, 1100, bands, dtype=np.float32)[:, None, None]

    def decode(self, blob):
        raw = np.frombuffer(zlib.decompress(blob), dtype="<u2").reshape(self.archive.shape)
        return (raw.astype(np.float32) - self.mean) / self.scale

    def augment(self, tile, rng):
        room = tile.shape[-1] - self.crop
        top, left = rng.integers(0, room + 1, 2)
        tile = tile[:, top:top + self.crop, left:left + self.crop]
        if rng.random() < 0.5:
            tile = tile[:, :, ::-1]
        if rng.random() < 0.5:
            tile = tile[:, ::-1]
        return np.ascontiguousarray(tile)

    def samples(self):
        info = get_worker_info()
        rank, world = (info.id, info.num_workers) if info else (0, 1)
        if self.variant == "slow":
            decoded = ((label, self.decode(blob)) for label, blob in self.archive.scan())
            for position, (label, tile) in enumerate(decoded):
                if position % world == rank:
                    yield label, tile
        else:
            for position, (label, blob) in enumerate(self.archive.scan()):
                if position % world == rank:
                    yield label, self.decode(blob)

    def __iter__(self):
        info = get_worker_info()
        rng = np.random.default_rng(info.seed % 2 ** 32 if info else 0)
        for label, tile in self.samples():
            yield torch.from_numpy(self.augment(tile, rng)), label


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(x + self.bn2(self.conv2(y)))


def build_network(bands, widths, depth):
    layers, previous = [], bands
    for width in widths:
        layers += [nn.Conv2d(previous, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [Block(width) for _ in range(depth)]
        previous = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(previous, 10))


class Session:
    def __init__(self, model, loader, device):
        self.model, self.device = model, device
        self.batches = iter(loader)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=device.type == "cuda")
        self.loss = torch.zeros((), device=device)

    def step(self):
        tiles, labels = next(self.batches)
        tiles = tiles.to(self.device, non_blocking=True).to(memory_format=torch.channels_last)
        labels = labels.to(self.device, non_blocking=True)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits = self.model(tiles)
        loss = F.cross_entropy(logits.float(), labels, label_smoothing=0.1)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.loss.lerp_(loss.detach(), 0.02)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    big = device.type == "cuda"
    archive = TileArchive(96 if big else 8, 8, 128 if big else 32)
    stream = TileStream(archive, 112 if big else 24, args.variant)
    workers = 8 if big else 1
    loader = DataLoader(stream, batch_size=32 if big else 4, num_workers=workers,
                        pin_memory=big, prefetch_factor=4, persistent_workers=True)
    model = build_network(8, [64, 128, 256] if big else [8, 8], 3 if big else 1)
    session = Session(model.to(device, memory_format=torch.channels_last), loader, device)
    run_loop(args, device, session.step)


if __name__ == "__main__":
    main()
