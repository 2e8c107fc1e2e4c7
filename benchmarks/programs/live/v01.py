"""Hierarchical windowed-attention image classifier, reproducible training recipe."""
import argparse
import json
import os
import random
import statistics
import time
from dataclasses import dataclass, field

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Recipe:
    image_size: int = 224
    batch_size: int = 128
    dim: int = 96
    depths: tuple = (2, 2, 6)
    heads: tuple = (3, 6, 12)
    window: int = 14
    drop: float = 0.1
    num_classes: int = 1000
    lr: float = 5e-4
    weight_decay: float = 0.05
    smoothing: float = 0.1
    seed: int = 1234
    relaxed_buffers: bool = False
    extras: dict = field(default_factory=dict)


def seed_everything(recipe: Recipe):
    random.seed(recipe.seed)
    np.random.seed(recipe.seed)
    torch.manual_seed(recipe.seed)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    if recipe.relaxed_buffers:
        torch.utils.deterministic.fill_uninitialized_memory = False


def to_windows(x, w):
    b, h, wd, c = x.shape
    x = x.view(b, h // w, w, wd // w, w, c)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, c)


def from_windows(x, w, b, h, wd):
    c = x.shape[-1]
    x = x.view(b, h // w, wd // w, w, w, c)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(b, h, wd, c)


class WindowAttention(nn.Module):
    def __init__(self, dim, heads, window, drop):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.bias = nn.Parameter(torch.zeros(heads, window * window, window * window))
        self.attn_drop = nn.Dropout(drop)
        self.proj_drop = nn.Dropout(drop)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        attn = (q * self.scale) @ k.transpose(-2, -1)
        attn = (attn + self.bias).softmax(dim=-1)
        out = self.attn_drop(attn) @ v
        return self.proj_drop(self.proj(out.transpose(1, 2).reshape(n, t, c)))


class Block(nn.Module):
    def __init__(self, dim, heads, window, shift, drop):
        super().__init__()
        self.window, self.shift = window, shift
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WindowAttention(dim, heads, window, drop)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Dropout(drop), nn.Linear(4 * dim, dim), nn.Dropout(drop))

    def forward(self, x):
        b, h, w, _ = x.shape
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), dims=(1, 2))
        y = from_windows(self.attn(to_windows(y, self.window)), self.window, b, h, w)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), dims=(1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class Merge(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduce = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x):
        b, h, w, c = x.shape
        x = x.view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 4, 2, 5).reshape(b, h // 2, w // 2, 4 * c)
        return self.reduce(self.norm(x))


class WindowNet(nn.Module):
    def __init__(self, r: Recipe):
        super().__init__()
        self.patch = nn.Conv2d(3, r.dim, 4, 4)
        layers, dim = [], r.dim
        for i, (depth, heads) in enumerate(zip(r.depths, r.heads)):
            for j in range(depth):
                layers.append(Block(dim, heads, r.window, 0 if j % 2 == 0 else r.window // 2, r.drop))
            if i + 1 < len(r.depths):
                layers.append(Merge(dim))
                dim *= 2
        self.body = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, r.num_classes)

    def forward(self, images):
        x = self.patch(images).permute(0, 2, 3, 1)
        x = self.norm(self.body(x))
        return self.head(x.mean(dim=(1, 2)))


class DeviceImagePool:
    """Keeps a pool of uint8 images on the device and serves normalised, flipped batches."""

    def __init__(self, r: Recipe, device, pool=1024):
        self.r, self.device = r, device
        self.images = torch.randint(0, 256, (pool, 3, r.image_size, r.image_size), dtype=torch.uint8, device=device)
        self.labels = torch.randint(0, r.num_classes, (pool,), device=device)
        self.gen = torch.Generator().manual_seed(r.seed)

    def next(self):
        idx = torch.randint(0, len(self.labels), (self.r.batch_size,), generator=self.gen).to(self.device, non_blocking=True)
        x = self.images.index_select(0, idx)
        if torch.rand((), generator=self.gen) < 0.5:
            x = x.flip(-1)
        return x.float().div_(127.5).sub_(1.0), self.labels.index_select(0, idx)


class Trainer:
    def __init__(self, r: Recipe, device):
        self.r, self.device = r, device
        self.model = WindowNet(r).to(device)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=r.lr, weight_decay=r.weight_decay, fused=device.type == "cuda")
        self.data = DeviceImagePool(r, device, 1024 if device.type == "cuda" else 16)

    def step(self):
        images, labels = self.data.next()
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            loss = F.cross_entropy(self.model(images), labels, label_smoothing=self.r.smoothing)
        loss.backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        return loss.detach()


def sync(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def record(trainer, device, path):
    acts = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        acts.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=acts, record_shapes=True, with_stack=True, with_modules=True,
                                schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            trainer.step()
            prof.step()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--steps", type=int, default=130)
    ap.add_argument("--max-seconds", type=float, default=60.0)
    ap.add_argument("--trace")
    args = ap.parse_args()
    device = torch.device(args.device)
    recipe = Recipe(relaxed_buffers=args.variant == "fixed")
    if device.type == "cpu":
        recipe.image_size, recipe.batch_size, recipe.dim, recipe.depths = 112, 2, 48, (1, 1, 2)
        recipe.window, recipe.num_classes = 7, 10
    seed_everything(recipe)
    trainer = Trainer(recipe, device)
    for _ in range(5 if device.type == "cuda" else 1):
        trainer.step()
    sync(device)
    marks, start = [time.perf_counter()], time.perf_counter()
    while len(marks) <= args.steps and time.perf_counter() - start < args.max_seconds:
        trainer.step()
        marks.append(time.perf_counter())
    sync(device)
    total = time.perf_counter() - start
    n = len(marks) - 1
    print(json.dumps({"program": "v01", "variant": args.variant, "steps": n, "step_ms_mean": 1e3 * total / n,
                      "step_ms_median": 1e3 * statistics.median(b - a for a, b in zip(marks, marks[1:]))}), flush=True)
    if args.trace:
        record(trainer, device, args.trace)


if __name__ == "__main__":
    main()
