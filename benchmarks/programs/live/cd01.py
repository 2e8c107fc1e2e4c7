"""Train a land-cover classifier on satellite patches stored in compressed shards."""
import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

BANDS, SIDE, CLASSES = 6, 32, 10


def write_shards(root: Path, shards: int, per_shard: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    index = []
    base = rng.integers(0, 180, (CLASSES, BANDS, SIDE, SIDE), dtype=np.uint8)
    for s in range(shards):
        labels = rng.integers(0, CLASSES, per_shard)
        pixels = base[labels] + rng.integers(0, 60, (per_shard, BANDS, SIDE, SIDE), dtype=np.uint8)
        path = root / f"part-{s:04d}.npz"
        np.savez_compressed(path, pixels=pixels, labels=labels.astype(np.int64))
        index += [(s, i) for i in range(per_shard)]
    return index


class PatchArchive(Dataset):
    """Random access to patches; keeps the most recently used parts in memory."""

    def __init__(self, root: Path, index, keep: int = 2, train: bool = True):
        self.root, self.index, self.keep, self.train = root, index, keep, train
        self._open = OrderedDict()
        self.mean = np.full((BANDS, 1, 1), 118.0, np.float32)
        self.std = np.full((BANDS, 1, 1), 54.0, np.float32)

    def __len__(self):
        return len(self.index)

    def _part(self, number: int):
        part = self._open.get(number)
        if part is None:
            with np.load(self.root / f"part-{number:04d}.npz") as z:
                part = (z["pixels"], z["labels"])
            self._open[number] = part
            while len(self._open) > self.keep:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(number)
        return part

    def _augment(self, x: np.ndarray, rng) -> np.ndarray:
        k = int(rng.integers(4))
        x = np.rot90(x, k, axes=(1, 2))
        if rng.random() < 0.5:
            x = x[:, :, ::-1]
        return x

    def __getitem__(self, i: int):
        shard, row = self.index[i]
        pixels, labels = self._part(shard)
        x = pixels[row].astype(np.float32)
        x = (x - self.mean) / self.std
        if self.train:
            x = self._augment(x, np.random.default_rng(i))
        return torch.from_numpy(np.ascontiguousarray(x)), int(labels[row])


class PartwiseSampler(Sampler):
    def __init__(self, index, seed: int):
        self.by_part = {}
        for i, (s, _) in enumerate(index):
            self.by_part.setdefault(s, []).append(i)
        self.rng = np.random.default_rng(seed)
        self.total = len(index)

    def __len__(self):
        return self.total

    def __iter__(self):
        parts = list(self.by_part)
        self.rng.shuffle(parts)
        for s in parts:
            rows = list(self.by_part[s])
            self.rng.shuffle(rows)
            yield from rows


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.a = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.na = nn.BatchNorm2d(cout)
        self.b = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.nb = nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        h = F.relu(self.na(self.a(x)))
        return F.relu(self.nb(self.b(h)) + self.skip(x))


class LandNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Conv2d(BANDS, width, 3, 1, 1)
        self.body = nn.Sequential(Block(width, width, 2), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2))
        self.head = nn.Linear(4 * width, CLASSES)

    def forward(self, x):
        return self.head(self.body(F.relu(self.stem(x))).mean((2, 3)))


def make_loader(root, index, args):
    data = PatchArchive(root, index)
    order = {"sampler": PartwiseSampler(index, args.seed)} if args.variant == "fixed" else {"shuffle": True}
    return DataLoader(data, batch_size=args.batch, num_workers=args.workers, drop_last=True,
                      persistent_workers=True, prefetch_factor=4, **order)


def train(args, root):
    index = write_shards(root, args.shards, args.per_shard)
    loader = make_loader(root, index, args)
    model = LandNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    times, correct, seen, step = [], 0, 0, 0
    begin = last = time.perf_counter()
    while step < args.steps and time.perf_counter() - begin < args.max_seconds:
        for x, y in loader:
            logits = model(x)
            loss = F.cross_entropy(logits, y, label_smoothing=0.05)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            correct += int((logits.argmax(1) == y).sum())
            seen += len(y)
            step += 1
            now = time.perf_counter()
            times.append((now - last) * 1e3)
            last = now
            if step >= args.steps or now - begin > args.max_seconds:
                break
    return times, correct / max(seen, 1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="slow", choices=["slow", "fixed", "healthy"])
    p.add_argument("--steps", type=int, default=80)
    p.add_argument("--max-seconds", type=float, default=120)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--shards", type=int, default=96)
    p.add_argument("--per-shard", type=int, default=32)
    p.add_argument("--seed", type=int, default=3)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    root = Path(tempfile.mkdtemp(prefix="patches"))
    try:
        times, acc = train(args, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    t = times[5:] or times
    print(json.dumps({"steps": len(times), "mean_ms": round(statistics.fmean(t), 3),
                      "median_ms": round(statistics.median(t), 3), "accuracy": round(acc, 3)}))


if __name__ == "__main__":
    main()
