"""Land-cover classifier on multispectral tiles (10 bands, 64 x 64) kept in one archive per region."""
import argparse
import os
import statistics
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BANDS, SIZE, CLASSES = 10, 32, 9


def make_region(path, tiles=96, seed=3):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, tiles)
    base = rng.integers(0, 40, (CLASSES, BANDS, 1, 1))
    noise = rng.integers(0, 12, (tiles, BANDS, SIZE, SIZE))
    np.savez_compressed(path, tiles=(base[labels] + noise).astype(np.uint16), labels=labels)


class Region(Dataset):
    """One region; tiles are scaled to reflectance when they are read."""

    def __init__(self, path, augment=True):
        self.archive = np.load(path)
        self.count = len(self.archive["labels"])
        self.augment = augment
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        tile = self.archive["tiles"][index].astype(np.float32) / 50.0
        if self.augment and self.rng.random() < 0.5:
            tile = tile[:, :, ::-1].copy()
        return torch.from_numpy(tile), int(self.archive["labels"][index])


class LoadedRegion(Region):
    def __init__(self, path, augment=True):
        super().__init__(path, augment)
        self.archive = {name: self.archive[name] for name in ("tiles", "labels")}


class TileNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(BANDS, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        self.head = nn.Linear(2 * width * 16, CLASSES)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


def endless(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    parser.add_argument("--steps", type=int, default=130)
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "region_031.npz")
        make_region(path)
        region = (Region if args.variant == "slow" else LoadedRegion)(path)
        loader = DataLoader(region, batch_size=16, shuffle=True, drop_last=True)
        model = TileNet()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        batches, times, correct, seen = endless(loader), [], 0, 0
        for step in range(args.steps):
            begin = time.perf_counter()
            tiles, labels = next(batches)
            logits = model(tiles)
            loss = nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            correct += int((logits.argmax(1) == labels).sum())
            seen += len(labels)
            times.append((time.perf_counter() - begin) * 1e3)
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.3f} accuracy {correct / seen:.2f}")
    times = times[5:]
    print(f"median_step_ms={statistics.median(times):.2f} mean_step_ms={statistics.fmean(times):.2f}")


if __name__ == "__main__":
    main()
