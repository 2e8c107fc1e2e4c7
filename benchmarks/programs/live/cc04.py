"""Outline regression: an image network predicts object outlines; annotations are polygons of varying length."""

import argparse
import json
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 80
torch.multiprocessing.set_sharing_strategy("file_system")


class Outlines(Dataset):
    def __init__(self, count, seed=11):
        rng = np.random.default_rng(seed)
        self.backgrounds = rng.integers(0, 255, (64, 3, SIDE + 8, SIDE + 8), dtype=np.uint8)
        self.records = [self._scene(rng) for _ in range(count)]

    @staticmethod
    def _scene(rng):
        scene = []
        for _ in range(int(rng.integers(5, 16))):
            k = int(rng.integers(6, 30))
            ang = np.sort(rng.random(k)) * 2 * np.pi
            radius = rng.uniform(4, 14) * (1 + 0.2 * rng.standard_normal(k))
            centre = rng.uniform(14, SIDE - 14, 2)
            scene.append(
                (
                    centre + np.stack([np.cos(ang), np.sin(ang)], 1) * radius[:, None],
                    int(rng.integers(12)),
                )
            )
        return scene

    def __len__(self):
        return len(self.records)

    def _image(self, i, flip, dx, dy):
        img = self.backgrounds[i % 64][:, dy : dy + SIDE, dx : dx + SIDE]
        if flip:
            img = img[:, :, ::-1]
        return torch.from_numpy(img.copy())

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        flip, (dx, dy) = bool(rng.integers(2)), rng.integers(0, 8, 2)
        target = {"polygons": [], "boxes": [], "labels": []}
        for points, label in self.records[i]:
            pts = points - (dx - 4, dy - 4)
            if flip:
                pts = pts * (-1, 1) + (SIDE, 0)
            pts = pts.clip(0, SIDE).astype(np.float32)
            target["polygons"].append(torch.from_numpy(pts))
            target["boxes"].append(torch.from_numpy(np.concatenate([pts.min(0), pts.max(0)])))
            target["labels"].append(torch.tensor(label))
        return self._image(i, flip, dx, dy), target


def pack(targets):
    polys = [p for t in targets for p in t["polygons"]]
    owner = torch.tensor([n for n, t in enumerate(targets) for _ in t["polygons"]])
    sizes = torch.tensor([len(p) for p in polys])
    return {
        "points": torch.cat(polys),
        "sizes": sizes,
        "owner": owner,
        "boxes": torch.stack([b for t in targets for b in t["boxes"]]),
        "labels": torch.stack([v for t in targets for v in t["labels"]]),
    }


def collate_scenes(samples):
    images, targets = zip(*samples)
    return torch.stack(images), list(targets)


def collate_packed(samples):
    images, targets = zip(*samples)
    return torch.stack(images), pack(targets)


class OutlineNet(nn.Module):
    def __init__(self, width=24, classes=12, rays=16):
        super().__init__()
        self.rays = rays
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Sequential(
            nn.Linear(2 * width + 2, 96), nn.ReLU(), nn.Linear(96, rays + classes)
        )

    def forward(self, images, centres, owner):
        maps = self.stem(images.float().div(255).sub(0.5))
        at = (centres / SIDE * (maps.shape[-1] - 1)).long().clamp(0, maps.shape[-1] - 1)
        feats = maps[owner, :, at[:, 1], at[:, 0]]
        return self.head(torch.cat([feats, centres / SIDE], dim=1)).split([self.rays, 12], dim=1)


def ray_targets(packed, rays):
    """Mean radius of the outline's points in each of the angular bins."""
    boxes, sizes = packed["boxes"], packed["sizes"]
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    owner = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    off = packed["points"] - centres[owner]
    bins = (
        ((torch.atan2(off[:, 1], off[:, 0]) / (2 * torch.pi) + 0.5) * rays)
        .long()
        .clamp(0, rays - 1)
    )
    flat = owner * rays + bins
    total = torch.zeros(len(sizes) * rays).index_add_(0, flat, off.norm(dim=1))
    count = torch.zeros(len(sizes) * rays).index_add_(0, flat, torch.ones(len(flat)))
    return centres, (total / count.clamp(min=1)).view(-1, rays), (count > 0).view(-1, rays)


def objective(model, images, packed):
    centres, radius, seen = ray_targets(packed, model.rays)
    pred, logits = model(images, centres, packed["owner"])
    shape = F.smooth_l1_loss(pred[seen], radius[seen] / 10)
    return shape + 0.3 * F.cross_entropy(logits, packed["labels"])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="slow", choices=["slow", "fixed", "healthy"])
    ap.add_argument("--steps", type=int, default=180)
    ap.add_argument("--max-seconds", type=float, default=60)
    ap.add_argument("--workers", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    data = Outlines(4000)
    collate = collate_scenes if args.variant == "slow" else collate_packed
    loader = DataLoader(
        data,
        batch_size=24,
        shuffle=True,
        drop_last=True,
        num_workers=args.workers,
        collate_fn=collate,
        persistent_workers=True,
        prefetch_factor=2,
    )
    model = OutlineNet()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    times, losses, began, step = [], [], time.perf_counter(), 0
    last = time.perf_counter()
    while step < args.steps:
        for images, targets in loader:
            packed = targets if isinstance(targets, dict) else pack(targets)
            loss = objective(model, images, packed)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.detach())
            now = time.perf_counter()
            if step >= 5:
                times.append(1e3 * (now - last))
            last = now
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.3f}", flush=True)
            step += 1
            if step >= args.steps or now - began > args.max_seconds:
                break
        if time.perf_counter() - began > args.max_seconds:
            break
    print(
        json.dumps(
            {
                "variant": args.variant,
                "steps": len(times),
                "loss": round(float(torch.stack(losses[-20:]).mean()), 4),
                "mean_ms": round(float(np.mean(times)), 3),
                "median_ms": round(float(np.median(times)), 3),
            }
        )
    )


if __name__ == "__main__":
    main()
