"""Training a plant classifier from photographs; threads prepare the next batches."""

import argparse
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

GPU = args.device == "cuda"
PHOTOS, SIDE, CROP, BATCH, WIDTH, LAYERS = (1500, 192, 160, 256, 384, 6) if GPU else (32, 40, 32, 8, 32, 2)
THREADS, KINDS, HEADS, WARM = 8, 50, 6 if GPU else 4, 4
MEAN = np.array([123.7, 116.3, 103.5], dtype=np.float32)
SPREAD = np.array([58.4, 57.1, 57.4], dtype=np.float32)


class Photos:
    def __init__(self):
        rng = np.random.default_rng(0)
        self.pixels = rng.integers(0, 256, (PHOTOS, SIDE, SIDE, 3), dtype=np.uint8)
        self.kinds = rng.integers(0, KINDS, PHOTOS)

    def cut(self, row, rng):
        top, left = rng.integers(0, SIDE - CROP, 2)
        part = self.pixels[row, top : top + CROP, left : left + CROP]
        return part[:, ::-1] if rng.random() < 0.5 else part


class HostPreparation:
    """Returns arrays that the model takes as they are."""

    def sample(self, part):
        scaled = (part.astype(np.float32) - MEAN) / SPREAD
        return np.ascontiguousarray(scaled.transpose(2, 0, 1))

    def arrive(self, batch):
        return batch.to(args.device, non_blocking=True)


class BytePreparation(HostPreparation):
    def __init__(self):
        self.mean = torch.from_numpy(MEAN).to(args.device).view(3, 1, 1)
        self.spread = torch.from_numpy(SPREAD).to(args.device).view(3, 1, 1)

    def sample(self, part):
        return np.ascontiguousarray(part)

    def arrive(self, batch):
        pixels = batch.to(args.device, non_blocking=True).permute(0, 3, 1, 2)
        return ((pixels.float() - self.mean) / self.spread).contiguous()


class Feeder(threading.Thread):
    """Keeps up to three finished batches ready for the trainer."""

    def __init__(self, photos, preparation):
        super().__init__(daemon=True)
        self.photos, self.preparation = photos, preparation
        self.ready, self.closing = queue.Queue(3), threading.Event()

    def one(self, order):
        row, seed = order
        return self.preparation.sample(self.photos.cut(row, np.random.default_rng(seed)))

    def run(self):
        rng = np.random.default_rng(1)
        with ThreadPoolExecutor(THREADS) as pool:
            while not self.closing.is_set():
                rows = rng.integers(0, PHOTOS, BATCH)
                parts = list(pool.map(self.one, zip(rows, rng.integers(0, 2**31, BATCH))))
                batch = torch.from_numpy(np.stack(parts))
                kinds = torch.from_numpy(self.photos.kinds[rows])
                self.offer((batch.pin_memory() if GPU else batch, kinds))

    def offer(self, item):
        while not self.closing.is_set():
            try:
                return self.ready.put(item, timeout=0.2)
            except queue.Full:
                continue


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        rows, length, _ = x.shape
        parts = self.qkv(self.first(x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.inlet = nn.Conv2d(3, WIDTH, 16, 16)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, KINDS)

    def forward(self, x):
        return self.head(self.blocks(self.inlet(x).flatten(2).transpose(1, 2)).mean(1))


def sync():
    if GPU:
        torch.cuda.synchronize()


def main():
    torch.manual_seed(0)
    model = Classifier().to(args.device)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=GPU)
    preparation = (HostPreparation if args.variant == "slow" else BytePreparation)()
    feeder = Feeder(Photos(), preparation)
    feeder.start()
    start = begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        batch, kinds = feeder.ready.get()
        with torch.autocast(args.device, torch.bfloat16):
            guess = model(preparation.arrive(batch))
        loss = F.cross_entropy(guess.float(), kinds.to(args.device, non_blocking=True))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step == WARM:
            sync()
            start = time.perf_counter()
        if time.perf_counter() - begin > args.max_seconds:
            break
    sync()
    took = time.perf_counter() - start
    feeder.closing.set()
    feeder.join()
    print(f"steps={step} mean_ms={1e3 * took / max(1, step - WARM):.3f}")


main()
