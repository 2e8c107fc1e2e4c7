#!/usr/bin/env python
"""Train an image classifier; validate every n steps."""
import argparse
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

TINY = os.environ.get("TINY") == "1"


class Shapes(Dataset):
    """Synthetic pictures: noisy gratings with the class in their angle."""

    def __init__(self, count, side, classes, seed):
        self.count, self.side, self.classes, self.seed = count, side, classes, seed
        self.noise = np.random.default_rng(seed).integers(0, 40, (side * 2, side * 2, 3), dtype=np.uint8)
        self.grid = np.mgrid[0:side, 0:side].astype(np.float32)

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng((self.seed, i))
        y = int(rng.integers(self.classes))
        a = np.pi * y / self.classes
        wave = 100 + 90 * np.sin(self.grid[0] * np.cos(a) * 0.3 + self.grid[1] * np.sin(a) * 0.3)
        dy, dx = rng.integers(0, self.side, 2)
        img = wave[..., None].astype(np.uint8) + self.noise[dy : dy + self.side, dx : dx + self.side]
        return torch.from_numpy(img), y


class Res(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.a, self.b = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(o), nn.BatchNorm2d(o)
        self.skip = nn.Conv2d(i, o, 1, stride, bias=False) if i != o or stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.nb(self.b(F.relu(self.na(self.a(x))))) + self.skip(x))


class Net(nn.Module):
    def __init__(self, w, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, w, 7, 2, 3)
        self.body = nn.Sequential(Res(w, w, 1), Res(w, w, 1), Res(w, 2 * w, 2), Res(2 * w, 2 * w, 1), Res(2 * w, 4 * w, 2), Res(4 * w, 4 * w, 1))
        self.head = nn.Linear(4 * w, classes)

    def forward(self, x):
        x = x.permute(0, 3, 1, 2).float().div(255).contiguous(memory_format=torch.channels_last)
        return self.head(self.body(self.stem(x)).mean((2, 3)))


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    right = torch.zeros((), device=device)
    for x, y in loader:
        with torch.autocast(device, torch.bfloat16):
            out = model(x.to(device, non_blocking=True))
        right += (out.argmax(1) == y.to(device, non_blocking=True)).sum()
    model.train()
    return right.item() / len(loader.dataset)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--batch", type=int, default=4 if TINY else 128)
    p.add_argument("--workers", type=int, default=1 if TINY else 8)
    p.add_argument("--side", type=int, default=16 if TINY else 128)
    p.add_argument("--eval-every", type=int, default=3 if TINY else 100)
    p.add_argument("--steps", type=int, default=4 if TINY else 5000)
    p.add_argument("--max-seconds", type=float, default=18)
    args = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = True
    classes = 20
    train, val = Shapes(200_000, args.side, classes, 1), Shapes(8 if TINY else 1024, args.side, classes, 2)
    # "spawn" keeps the workers clear of CUDA state
    loader = DataLoader(train, batch_size=args.batch, shuffle=True, drop_last=True, num_workers=args.workers, pin_memory=device == "cuda", persistent_workers=True, multiprocessing_context="spawn")
    val_loader = DataLoader(val, batch_size=args.batch, num_workers=args.workers, pin_memory=device == "cuda", persistent_workers=True, multiprocessing_context="spawn")
    model = Net(8 if TINY else 192, classes).to(device, memory_format=torch.channels_last)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, fused=True)
    step, start = 0, time.time()
    while step < args.steps and time.time() - start < args.max_seconds:
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            with torch.autocast(device, torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            opt.zero_grad()
            step += 1
            if step % args.eval_every == 0:
                acc = evaluate(model, val_loader, device)
                print(f"step {step} loss {loss.item():.3f} val acc {acc:.3f}", flush=True)
            if step >= args.steps or time.time() - start > args.max_seconds:
                break
    print(f"done: {step} steps in {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
