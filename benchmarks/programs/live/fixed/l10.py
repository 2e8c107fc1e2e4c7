#!/usr/bin/env python
"""Train on a folder of JPEG photographs (made on the first start)."""
import argparse
import io
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageEnhance, ImageFilter
from torch.utils.data import DataLoader, Dataset

TINY = os.environ.get("TINY") == "1"


def make_photos(folder, count, size):
    rng = np.random.default_rng(0)
    for k in range(count):
        small = Image.fromarray(rng.integers(0, 255, (24, 32, 3), dtype=np.uint8))
        small.resize(size, Image.BICUBIC).save(os.path.join(folder, f"{k % 10}_{k:04d}.jpg"), quality=85)


class Blur:
    def __call__(self, img, rng):
        return img.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.3, 2.0))))


class Jitter:
    def __call__(self, img, rng):
        for kind in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
            img = kind(img).enhance(float(rng.uniform(0.7, 1.3)))
        return img


class Rotate:
    def __call__(self, img, rng):
        return img.rotate(float(rng.uniform(-10, 10)), Image.BILINEAR)


class Resize:
    def __init__(self, side):
        self.side = side

    def __call__(self, img, rng):
        return img.resize((self.side, self.side), Image.BILINEAR)


class Photos(Dataset):
    def __init__(self, folder, side):
        self.files = sorted(os.path.join(folder, f) for f in os.listdir(folder))
        self.transforms = [Resize(side), Jitter(), Blur(), Rotate()]

    def __len__(self):
        return len(self.files) * 50

    def __getitem__(self, i):
        path = self.files[i % len(self.files)]
        rng = np.random.default_rng(i)
        with open(path, "rb") as f:
            img = Image.open(io.BytesIO(f.read())).convert("RGB")
        for t in self.transforms:
            img = t(img, rng)
        return torch.from_numpy(np.asarray(img).copy()), int(os.path.basename(path).split("_")[0])


class ViT(nn.Module):
    def __init__(self, side, d, h, layers, classes):
        super().__init__()
        self.patch = nn.Conv2d(3, d, 16, 16)
        self.pos = nn.Parameter(torch.zeros(1, (side // 16) ** 2, d))
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(d, h, 4 * d, 0.0, F.gelu, batch_first=True, norm_first=True) for _ in range(layers)])
        self.head = nn.Linear(d, classes)

    def forward(self, x):
        x = self.patch(x.permute(0, 3, 1, 2).float() / 255 - 0.5).flatten(2).transpose(1, 2).contiguous() + self.pos
        for b in self.blocks:
            x = b(x)
        return self.head(x.mean(1))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--photos", default=None)
    p.add_argument("--side", type=int, default=32 if TINY else 224)
    p.add_argument("--batch", type=int, default=2 if TINY else 64)
    p.add_argument("--workers", type=int, default=1 if TINY else 12)
    p.add_argument("--steps", type=int, default=4 if TINY else 2000)
    p.add_argument("--max-seconds", type=float, default=15)
    args = p.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    folder = args.photos
    if not folder:
        folder = tempfile.mkdtemp()
        make_photos(folder, 8 if TINY else 100, (80, 60) if TINY else (1280, 960))
    loader = DataLoader(Photos(folder, args.side), batch_size=args.batch, shuffle=True, drop_last=True, num_workers=args.workers, pin_memory=device == "cuda", prefetch_factor=3)
    d, h, layers = (32, 2, 1) if TINY else (768, 12, 12)
    model = ViT(args.side, d, h, layers, 10).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
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
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.3f} {step * args.batch / (time.time() - start):.0f} img/s", flush=True)
            if step >= args.steps or time.time() - start > args.max_seconds:
                break
    print(f"done: {step} steps in {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
