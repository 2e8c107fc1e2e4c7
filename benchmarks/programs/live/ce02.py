"""Image classifier fed from record shards through an iterable pipeline."""
import argparse
import io
import itertools
import json
import random
import shutil
import statistics
import struct
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

PIPELINES = {
    "slow": ("read", "decode", "shuffle", "split"),
    "fixed": ("read", "split", "decode", "shuffle"),
}


def write_shards(root, shards, per_shard, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:448, 0:448].astype(np.float32) / 448
    for s in range(shards):
        with open(root / f"part-{s:04d}.rec", "wb") as out:
            for _ in range(per_shard):
                label = int(rng.integers(10))
                phase = rng.uniform(0, 6.3, 3)
                wave = np.stack([np.sin((label + 2) * (xx * a + yy * b) * 3 + p)
                                 for (a, b), p in zip(((1, 0), (0, 1), (1, 1)), phase)], -1)
                pixels = np.clip(wave * 90 + 128 + rng.integers(-24, 24, wave.shape, dtype=np.int8), 0, 255)
                buf = io.BytesIO()
                Image.fromarray(pixels.astype(np.uint8)).save(buf, "JPEG", quality=92)
                out.write(struct.pack("<II", label, buf.tell()) + buf.getvalue())


class RecordStream(IterableDataset):
    def __init__(self, root, stages, size=96, window=48, seed=0):
        self.paths = sorted(Path(root).glob("part-*.rec"))
        self.stages = stages
        self.size, self.window, self.seed = size, window, seed

    def read(self, _, rng):
        for turn in itertools.count():
            order = list(self.paths)
            rng.shuffle(order)
            for path in order:
                with open(path, "rb") as f:
                    while head := f.read(8):
                        label, length = struct.unpack("<II", head)
                        yield {"label": label, "blob": f.read(length), "turn": turn}

    def split(self, items, rng):
        info = get_worker_info()
        if info is None:
            return items
        return itertools.islice(items, info.id, None, info.num_workers)

    def decode(self, items, rng):
        for item in items:
            image = Image.open(io.BytesIO(item.pop("blob"))).convert("RGB")
            left, top = rng.randint(0, 48), rng.randint(0, 48)
            image = image.crop((left, top, left + 400, top + 400))
            image = image.resize((self.size, self.size), Image.Resampling.BICUBIC)
            pixels = np.asarray(image, dtype=np.float32).transpose(2, 0, 1)
            if rng.random() < 0.5:
                pixels = pixels[:, :, ::-1]
            yield {**item, "image": pixels / 127.5 - 1.0}

    def shuffle(self, items, rng):
        held = []
        for item in items:
            if len(held) < self.window:
                held.append(item)
                continue
            at = rng.randrange(self.window)
            held[at], item = item, held[at]
            yield item
        rng.shuffle(held)
        yield from held

    def __iter__(self):
        rng = random.Random(self.seed)
        items = None
        for name in self.stages:
            items = getattr(self, name)(items, rng)
        return iter(items)


def collate(samples):
    images = torch.from_numpy(np.stack([s["image"] for s in samples]))
    return images, torch.tensor([s["label"] for s in samples])


class Net(nn.Module):
    def __init__(self, classes=10, width=12):
        super().__init__()
        layers, last = [], 3
        for mult in (1, 2, 4):
            layers += [nn.Conv2d(last, width * mult, 3, 2, 1, bias=False),
                       nn.BatchNorm2d(width * mult), nn.ReLU(inplace=True)]
            last = width * mult
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(last, classes)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def train(loader, args):
    model = Net()
    opt = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, nesterov=True)
    times, correct, seen = [], 0, 0
    batches = iter(loader)
    next(batches)
    began = time.perf_counter()
    for _ in range(args.steps):
        t0 = time.perf_counter()
        images, labels = next(batches)
        logits = model(images)
        loss = F.cross_entropy(logits, labels)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        correct += int((logits.argmax(1) == labels).sum())
        seen += len(labels)
        times.append((time.perf_counter() - t0) * 1e3)
        if time.perf_counter() - began > args.max_seconds:
            break
    return times, correct / seen


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=22)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--batch", type=int, default=32)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp(prefix="records-"))
    try:
        write_shards(root, shards=3, per_shard=32, seed=1)
        data = RecordStream(root, PIPELINES[args.variant])
        loader = DataLoader(data, batch_size=args.batch, num_workers=args.workers,
                            collate_fn=collate, prefetch_factor=2, persistent_workers=True)
        times, accuracy = train(loader, args)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    kept = times[8:] or times
    print(json.dumps({"case": "ce02", "variant": args.variant, "steps": len(times), "accuracy": round(accuracy, 3),
                      "mean_step_ms": round(statistics.fmean(kept), 2),
                      "median_step_ms": round(statistics.median(kept), 2)}))


if __name__ == "__main__":
    main()
