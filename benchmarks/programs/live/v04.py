"""Anchor-free detector trained from an in-memory shard of images with box annotations."""
import argparse
import json
import resource
import statistics
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

FIELDS = ("boxes", "labels", "area", "iscrowd", "image_id", "orig_size", "size")


@dataclass
class Settings:
    image_size: int = 256
    batch_size: int = 48
    workers: int = 6
    classes: int = 80
    max_objects: int = 24
    shard: int = 4096
    width: int = 64
    blocks: tuple = (3, 4, 6, 3)
    packed: bool = False


def raise_file_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class ShardDataset(Dataset):
    def __init__(self, cfg: Settings, length: int):
        self.cfg, self.length = cfg, length
        rng = np.random.default_rng(0)
        s = cfg.image_size
        self.tiles = rng.integers(0, 256, (64, 3, s + 32, s + 32), dtype=np.uint8)
        self.counts = rng.integers(1, cfg.max_objects + 1, cfg.shard)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        cfg, rng = self.cfg, np.random.default_rng(index)
        s = cfg.image_size
        y, x = rng.integers(0, 32, 2)
        image = np.ascontiguousarray(self.tiles[index % 64, :, y:y + s, x:x + s])
        n = int(self.counts[index % cfg.shard])
        xy = rng.random((n, 2), dtype=np.float32) * (s - 32)
        wh = rng.random((n, 2), dtype=np.float32) * 96 + 8
        boxes = np.concatenate([xy, np.minimum(xy + wh, s)], axis=1)
        target = {
            "boxes": torch.from_numpy(boxes),
            "labels": torch.from_numpy(rng.integers(0, cfg.classes, n)),
            "area": torch.from_numpy((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])),
            "iscrowd": torch.zeros(n, dtype=torch.int64),
            "image_id": torch.tensor([index]),
            "orig_size": torch.tensor([s, s]),
            "size": torch.tensor([s, s]),
        }
        return torch.from_numpy(image), target


def collate_samples(samples):
    images, targets = zip(*samples)
    return torch.stack(images), list(targets)


def collate_packed(samples):
    images, targets = zip(*samples)
    lengths = {k: [t[k].shape[0] for t in targets] for k in FIELDS}
    return torch.stack(images), {k: torch.cat([t[k] for t in targets]) for k in FIELDS}, lengths


def move_samples(batch, device):
    images, targets = batch
    return images.to(device, non_blocking=True), [{k: v.to(device, non_blocking=True) for k, v in t.items()} for t in targets]


def move_packed(batch, device):
    images, fields, lengths = batch
    parts = {k: v.to(device, non_blocking=True).split(lengths[k]) for k, v in fields.items()}
    targets = [{k: parts[k][i] for k in FIELDS} for i in range(images.shape[0])]
    return images.to(device, non_blocking=True), targets


def batch_pipeline(cfg: Settings):
    return (collate_packed, move_packed) if cfg.packed else (collate_samples, move_samples)


class Bottleneck(nn.Module):
    def __init__(self, cin, mid, cout, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(cin, mid, 1, bias=False), nn.BatchNorm2d(mid), nn.ReLU(inplace=True),
            nn.Conv2d(mid, mid, 3, stride, 1, bias=False), nn.BatchNorm2d(mid), nn.ReLU(inplace=True),
            nn.Conv2d(mid, cout, 1, bias=False), nn.BatchNorm2d(cout))
        self.skip = nn.Identity() if cin == cout and stride == 1 else nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


def stage(cin, mid, blocks, stride):
    return nn.Sequential(*[Bottleneck(cin if i == 0 else 4 * mid, mid, 4 * mid, stride if i == 0 else 1) for i in range(blocks)])


class Detector(nn.Module):
    def __init__(self, cfg: Settings):
        super().__init__()
        w, (b1, b2, b3, b4) = cfg.width, cfg.blocks
        self.stem = nn.Sequential(nn.Conv2d(3, w, 7, 2, 3, bias=False), nn.BatchNorm2d(w), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
                                  stage(w, w, b1, 1), stage(4 * w, 2 * w, b2, 2))
        self.c4, self.c5 = stage(8 * w, 4 * w, b3, 2), stage(16 * w, 8 * w, b4, 2)
        self.lat4, self.lat5 = nn.Conv2d(16 * w, 256, 1), nn.Conv2d(32 * w, 256, 1)
        self.tower = nn.Sequential(*[m for _ in range(3) for m in (nn.Conv2d(256, 256, 3, padding=1, bias=False), nn.BatchNorm2d(256), nn.ReLU(inplace=True))])
        self.cls = nn.Conv2d(256, cfg.classes, 3, padding=1)
        self.reg = nn.Conv2d(256, 4, 3, padding=1)
        nn.init.constant_(self.cls.bias, -4.6)

    def forward(self, x):
        c4 = self.c4(self.stem(x))
        p = self.lat4(c4) + F.interpolate(self.lat5(self.c5(c4)), scale_factor=2.0, mode="nearest")
        p = self.tower(p)
        return self.cls(p), self.reg(p)


def focal(logits, target, alpha=0.25, gamma=2.0):
    ce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    p = torch.sigmoid(logits)
    pt = p * target + (1 - p) * (1 - target)
    return ((alpha * target + (1 - alpha) * (1 - target)) * ce * (1 - pt) ** gamma).sum()


class PointLoss:
    """Assigns every feature-map point to the smallest box which contains it."""

    def __init__(self, cfg: Settings, device):
        self.cfg = cfg
        side = cfg.image_size // 16
        c = (torch.arange(side, device=device).float() + 0.5) * 16
        self.points = torch.stack(torch.meshgrid(c, c, indexing="xy"), dim=-1).view(-1, 2)

    def dense(self, targets):
        # fixed-size table, so that the matching is a handful of batched kernels
        m = self.cfg.max_objects
        pad = lambda v: F.pad(v, (0, 0, 0, m - v.shape[0])) if v.dim() == 2 else F.pad(v, (0, m - v.shape[0]))
        boxes = torch.stack([pad(t["boxes"]) for t in targets])
        info = torch.stack([pad(torch.stack([t["labels"].float(), t["area"]], dim=1)) for t in targets])
        return boxes, info[..., 0].long(), info[..., 1]

    def __call__(self, logits, deltas, targets):
        boxes, labels, areas = self.dense(targets)
        logits = logits.flatten(2).transpose(1, 2).float()
        deltas = deltas.flatten(2).transpose(1, 2).float().exp().clamp(max=64.0)
        p = self.points[None, :, None]
        ltrb = torch.cat([p - boxes[:, None, :, :2], boxes[:, None, :, 2:] - p], dim=-1)
        inside = ltrb.amin(dim=-1) > 0
        cost = torch.where(inside, areas[:, None], 1e9)
        best, which = cost.min(dim=-1)
        positive = (best < 1e9).float()
        onehot = F.one_hot(labels.gather(1, which), self.cfg.classes) * positive[..., None]
        goal = ltrb.gather(2, which[..., None, None].expand(-1, -1, 1, 4)).squeeze(2) / 16
        norm = positive.sum().clamp(min=1.0)
        cls = focal(logits, onehot) / norm
        reg = (F.smooth_l1_loss(deltas, goal, reduction="none").sum(-1) * positive).sum() / norm
        return cls + reg


class Session:
    def __init__(self, cfg: Settings, device, total_steps):
        self.cfg, self.device = cfg, device
        self.model = Detector(cfg).to(device, memory_format=torch.channels_last).train()
        self.loss = PointLoss(cfg, device)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=1e-4, momentum=0.9, weight_decay=1e-4, fused=device.type == "cuda")
        collate, self.move = batch_pipeline(cfg)
        loader = DataLoader(ShardDataset(cfg, total_steps * cfg.batch_size), batch_size=cfg.batch_size, shuffle=True,
                            num_workers=cfg.workers, pin_memory=device.type == "cuda", collate_fn=collate, drop_last=True,
                            persistent_workers=True, worker_init_fn=lambda _: torch.set_num_threads(1))
        self.batches = iter(loader)

    def step(self):
        images, targets = self.move(next(self.batches), self.device)
        images = images.to(memory_format=torch.channels_last).float().div_(255.0)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits, deltas = self.model(images)
        loss = self.loss(logits, deltas, targets)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--max-seconds", type=float, default=60.0)
    ap.add_argument("--trace")
    args = ap.parse_args()
    device = torch.device(args.device)
    cfg = Settings(packed=args.variant == "fixed")
    if device.type == "cpu":
        cfg.image_size, cfg.batch_size, cfg.workers, cfg.width, cfg.blocks = 64, 4, 1, 8, (1, 1, 1, 1)
    else:
        torch.backends.cudnn.benchmark = True
    raise_file_limit()
    warmup = 12 if device.type == "cuda" else 1
    run = Session(cfg, device, args.steps + warmup + 16)
    for _ in range(warmup):
        run.step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    stamps = [start]
    for _ in range(args.steps):
        run.step()
        stamps.append(time.perf_counter())
        if stamps[-1] - start > args.max_seconds:
            break
    if device.type == "cuda":
        torch.cuda.synchronize()
    total, n = time.perf_counter() - start, len(stamps) - 1
    print(json.dumps({"program": "v04", "variant": args.variant, "steps": n, "step_ms_mean": 1e3 * total / n,
                      "step_ms_median": 1e3 * statistics.median(np.diff(stamps))}), flush=True)
    if args.trace:
        acts = [torch.profiler.ProfilerActivity.CPU] + ([torch.profiler.ProfilerActivity.CUDA] if device.type == "cuda" else [])
        with torch.profiler.profile(activities=acts, record_shapes=True, with_stack=True, with_modules=True,
                                    schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                    on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                run.step()
                prof.step()


if __name__ == "__main__":
    main()
