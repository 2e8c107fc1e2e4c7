"""Keyword spotting: log-mel clips from shard archives, a small convolutional recurrent classifier."""
import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MELS, FRAMES, CLASSES = 40, 64, 20


def make_shards(folder: Path, shards: int, clips: int, seed: int = 7) -> list[Path]:
    rng = np.random.default_rng(seed)
    basis = rng.normal(size=(CLASSES, MELS, FRAMES)).astype(np.float32)
    paths = []
    for number in range(shards):
        labels = rng.integers(0, CLASSES, size=clips)
        noise = rng.normal(size=(clips, MELS, FRAMES)).astype(np.float32)
        mel = (basis[labels] + 1.5 * noise).astype(np.float16)
        path = folder / f"shard-{number:03d}.npz"
        np.savez_compressed(path, mel=mel, label=labels.astype(np.int64))
        paths.append(path)
    return paths


class Shard:
    """One archive of clips; opened where it is first used, so that each worker has its own handle."""

    def __init__(self, path: Path, variant: str):
        self.path = path
        self.variant = variant
        self.archive = None

    def open(self):
        if self.archive is None:
            archive = np.load(self.path, allow_pickle=False)
            if self.variant == "fixed":
                with archive:
                    self.archive = {name: archive[name] for name in archive.files}
            else:
                self.archive = archive
        return self.archive

    def clip(self, index: int):
        archive = self.open()
        return archive["mel"][index], int(archive["label"][index])


class SpecAugment:
    def __init__(self, freq_width=6, time_width=10, seed=0):
        self.freq_width, self.time_width = freq_width, time_width
        self.rng = np.random.default_rng(seed + os.getpid())

    def __call__(self, mel: np.ndarray) -> np.ndarray:
        low = self.rng.integers(0, MELS - self.freq_width)
        start = self.rng.integers(0, FRAMES - self.time_width)
        mel[low : low + self.freq_width] = 0
        mel[:, start : start + self.time_width] = 0
        return mel


class Clips(Dataset):
    def __init__(self, paths, clips_per_shard: int, variant: str, augment=None):
        self.shards = [Shard(path, variant) for path in paths]
        self.per_shard = clips_per_shard
        self.augment = augment

    def __len__(self):
        return len(self.shards) * self.per_shard

    def __getitem__(self, index: int):
        shard, inside = divmod(index, self.per_shard)
        mel, label = self.shards[shard].clip(inside)
        mel = mel.astype(np.float32)
        mel = (mel - mel.mean()) / (mel.std() + 1e-5)
        if self.augment is not None:
            mel = self.augment(mel)
        return torch.from_numpy(mel), label


class Spotter(nn.Module):
    def __init__(self, channels=24, hidden=96):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(1, channels, 5, stride=2, padding=2), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, stride=(2, 1), padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
        )
        self.rnn = nn.GRU(channels * MELS // 4, hidden, batch_first=True)
        self.head = nn.Linear(hidden, CLASSES)

    def forward(self, mel):
        maps = self.front(mel.unsqueeze(1))
        frames = maps.flatten(1, 2).transpose(1, 2)
        states, _ = self.rnn(frames)
        return self.head(states.mean(dim=1))


def batches(loader):
    while True:
        yield from loader


def train(args, folder: Path):
    paths = make_shards(folder, args.shards, args.clips)
    data = Clips(paths, args.clips, args.variant, SpecAugment())
    loader = DataLoader(data, batch_size=args.batch, shuffle=True, num_workers=args.workers,
                        persistent_workers=True, prefetch_factor=2, drop_last=True)
    model = Spotter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    times, running = [], 0.0
    begin = last = time.perf_counter()
    for step, (mel, label) in enumerate(batches(loader)):
        loss = criterion(model(mel), label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        schedule.step()
        if step % 20 == 0:
            running = loss.item()
            print(f"step {step} loss {running:.3f}", flush=True)
        now = time.perf_counter()
        if step == 0:
            begin = now
        times.append(1e3 * (now - last))
        last = now
        if step + 1 >= args.steps or now - begin > args.max_seconds:
            break
    return times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--max-seconds", type=float, default=25)
    parser.add_argument("--shards", type=int, default=20)
    parser.add_argument("--clips", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        times = train(args, Path(folder))[5:]
    print(json.dumps({"case": "cb01", "variant": args.variant, "steps": len(times),
                      "mean_ms": statistics.fmean(times), "median_ms": statistics.median(times)}))


if __name__ == "__main__":
    main()
