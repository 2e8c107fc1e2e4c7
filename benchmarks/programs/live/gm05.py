"""Classification of satellite tiles stored in archive shards."""
import argparse
import io
import json
import os
import statistics
import tempfile
import time
import zipfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, RandomSampler

PROGRAM = "gm05"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 550
WARMUP = 6


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
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


def write_shards(folder, shards, per_shard, side, seed=3):
    rng = np.random.default_rng(seed)
    index = []
    for s in range(shards):
        path = os.path.join(folder, f"tiles-{s:03d}.zip")
        base = rng.integers(0, 256, (side, side, 3), dtype=np.uint8)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for i in range(per_shard):
                tile = np.roll(base, (i, 3 * i), axis=(0, 1))
                label = int(rng.integers(0, 45))
                name = f"region_{s:03d}/tile_{i:05d}.npy"
                buffer = io.BytesIO()
                np.save(buffer, tile)
                archive.writestr(name, buffer.getvalue())
                index.append((path, name, label))
    return index


class ShardStore:
    """Reads members of the archives; safe to use after a fork."""

    def __init__(self, variant):
        self.variant = variant
        self.archives = {}

    def archive(self, path):
        if self.variant == "fixed":
            if path not in self.archives:
                self.archives[path] = zipfile.ZipFile(path)
            return self.archives[path]
        return zipfile.ZipFile(path)

    def read(self, path, name):
        return np.load(io.BytesIO(self.archive(path).read(name)))


class TileTransform:
    def __init__(self, crop):
        self.crop = crop

    def __call__(self, tile, rng):
        room = tile.shape[0] - self.crop
        y, x = rng.integers(0, room + 1, 2)
        tile = tile[y:y + self.crop, x:x + self.crop]
        tile = np.rot90(tile, int(rng.integers(4)))
        if rng.random() < 0.5:
            tile = tile[:, ::-1]
        gain = rng.uniform(0.85, 1.15)
        table = np.clip(np.arange(256) * gain, 0, 255).astype(np.uint8)
        return np.ascontiguousarray(table[tile])


class Tiles(Dataset):
    def __init__(self, index, store, transform):
        self.index, self.store, self.transform = index, store, transform
        self.rng = None

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        if self.rng is None:
            self.rng = np.random.default_rng(torch.initial_seed() % 2 ** 32)
        path, name, label = self.index[i]
        tile = self.transform(self.store.read(path, name), self.rng)
        return torch.from_numpy(tile), label


class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.a = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.b = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride != 1 or inputs != outputs else None

    def forward(self, x):
        y = F.relu(self.na(self.a(x)), inplace=True)
        y = self.nb(self.b(y))
        return F.relu(y + (x if self.skip is None else self.skip(x)), inplace=True)


def network(width, classes=45):
    stages, channels = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)], width
    for i, blocks in enumerate((2, 3, 3, 2)):
        for j in range(blocks):
            out = width * 2 ** i
            stages.append(Residual(channels, out, 2 if j == 0 and i > 0 else 1))
            channels = out
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Trainer:
    def __init__(self, model, loader, device):
        self.model, self.loader, self.device = model, loader, device
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, foreach=True)
        self.mean = torch.tensor([118.0, 116.0, 103.0], device=device).view(1, 3, 1, 1)
        self.scale = torch.tensor([51.0, 49.0, 48.0], device=device).view(1, 3, 1, 1)
        self.right = torch.zeros((), device=device)
        self.batches = iter(loader)
        self.seen = 0

    def fetch(self):
        tiles, labels = next(self.batches)
        tiles = tiles.to(self.device, non_blocking=True).permute(0, 3, 1, 2)
        return (tiles.float() - self.mean) / self.scale, labels.to(self.device, non_blocking=True)

    def step(self):
        x, y = self.fetch()
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits = self.model(x)
        loss = F.cross_entropy(logits.float(), y, label_smoothing=0.1)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.right += (logits.argmax(1) == y).sum()
        self.seen += y.numel()
        if self.seen % (100 * y.numel()) == 0:
            print(f"seen {self.seen} accuracy {self.right.item() / self.seen:.4f}", flush=True)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    small = device.type == "cpu"
    with tempfile.TemporaryDirectory(prefix="tiles") as folder:
        index = write_shards(folder, 2 if small else 4, 60 if small else 2000, 48 if small else 96)
        data = Tiles(index, ShardStore(args.variant), TileTransform(40 if small else 80))
        sampler = RandomSampler(data, replacement=True, num_samples=10 ** 7)
        loader = DataLoader(data, batch_size=8 if small else 128, sampler=sampler, num_workers=1 if small else 8,
                            pin_memory=device.type == "cuda", prefetch_factor=4, drop_last=True)
        model = network(8 if small else 96).to(device, memory_format=torch.channels_last)
        trainer = Trainer(model, loader, device)
        run_loop(args, device, trainer.step)
        del trainer.batches


if __name__ == "__main__":
    main()
