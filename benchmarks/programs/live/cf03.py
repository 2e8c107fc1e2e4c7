"""Scene graphs: images with a varying number of annotated objects."""
import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

ap = argparse.ArgumentParser()
ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
ap.add_argument("--steps", type=int, default=100000)
ap.add_argument("--max-seconds", type=float, default=28)
args = ap.parse_args()
FIELDS = ("boxes", "labels", "area", "crowd", "depth", "image")


class Scenes(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(0)
        self.images = torch.randint(0, 255, (2048, 3, 32, 32), dtype=torch.uint8, generator=g)
        self.counts = torch.randint(1, 9, (n,), generator=g).tolist()
        self.pool = torch.rand(4096, 4, generator=g)
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        k = self.counts[i]
        boxes = self.pool[i % 4000 : i % 4000 + k].clone()
        target = {
            "boxes": boxes,
            "labels": (boxes[:, 0] * 20).long(),
            "area": boxes[:, 2] * boxes[:, 3],
            "crowd": torch.zeros(k, dtype=torch.bool),
            "depth": boxes[:, 1] * 5,
            "image": torch.tensor([i]),
        }
        return self.images[i % 2048].float() / 255, target


def collate(samples):
    images = torch.stack([s[0] for s in samples])
    targets = [s[1] for s in samples]
    if args.variant == "fixed":
        sizes = [len(t["boxes"]) for t in targets]
        return images, ({f: torch.cat([t[f] for t in targets]) for f in FIELDS}, sizes)
    return images, targets


def flatten(targets):
    if args.variant == "fixed":
        return targets
    sizes = [len(t["boxes"]) for t in targets]
    return {f: torch.cat([t[f] for t in targets]) for f in FIELDS}, sizes


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        def stage(i, o, s):
            return nn.Sequential(nn.Conv2d(i, o, 3, s, 1), nn.BatchNorm2d(o), nn.ReLU())
        self.body = nn.Sequential(stage(3, 24, 2), stage(24, 32, 2), stage(32, 64, 2), stage(64, 96, 1))
        self.query = nn.Linear(4, 96)
        self.label = nn.Linear(192, 21)
        self.geometry = nn.Linear(192, 2)

    def forward(self, images, boxes, owner):
        f = self.body(images).mean((2, 3))
        h = torch.cat([f.index_select(0, owner), F.relu(self.query(boxes))], 1)
        return self.label(h), self.geometry(h)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = Net()
    opt = torch.optim.AdamW(net.parameters(), 1e-3)
    loader = DataLoader(
        Scenes(400_000), 64, shuffle=True, num_workers=2, collate_fn=collate, prefetch_factor=4, drop_last=True
    )
    times, begin = [], time.perf_counter()
    last, running = begin, torch.zeros(())
    for step, (images, targets) in enumerate(loader):
        if step >= args.steps or last - begin > args.max_seconds:
            break
        t, sizes = flatten(targets)
        owner = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        label, geometry = net(images, t["boxes"], owner)
        weight = 1 - t["crowd"].float()
        loss = (F.cross_entropy(label, t["labels"], reduction="none") * weight).mean()
        loss = loss + F.smooth_l1_loss(geometry, torch.stack([t["area"], t["depth"]], 1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        running = 0.98 * running + 0.02 * loss.detach()
        now = time.perf_counter()
        times.append((now - last) * 1e3)
        last = now
    t = sorted(times[5:])
    print(json.dumps({"steps": len(times), "mean_ms": sum(t) / len(t), "median_ms": t[len(t) // 2]}))


if __name__ == "__main__":
    main()
