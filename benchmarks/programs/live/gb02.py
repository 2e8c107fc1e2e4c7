"""Detection pre-training on thermal tiles: transformer backbone, dense anchors, variable numbers of boxes per tile."""
import argparse
import json
import resource
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PROGRAM = "gb02"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 380
WARMUP = 4
FIELDS = ("boxes", "labels", "area", "iscrowd", "visibility", "track_id")


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def run_loop(args, device, step):
    for _ in range(WARMUP):
        step()
    synchronize(device)
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    synchronize(device)
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        record_trace(args.trace, device, step)


def record_trace(path, device, step):
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            step()
            prof.step()
    synchronize(device)


class ThermalTiles(Dataset):
    def __init__(self, length, side, max_boxes, classes):
        self.length, self.side, self.max_boxes, self.classes = length, side, max_boxes, classes

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        image = rng.integers(0, 256, (1, self.side, self.side), dtype=np.uint8)
        count = int(rng.integers(1, self.max_boxes + 1))
        corner = rng.random((count, 2), dtype=np.float32) * 0.7
        size = rng.random((count, 2), dtype=np.float32) * 0.25 + 0.05
        for x, y in (corner * self.side).astype(int):
            image[:, y:y + 6, x:x + 6] |= 0xC0
        boxes = np.concatenate([corner + size / 2, size], axis=1)
        target = {
            "boxes": torch.from_numpy(boxes),
            "labels": torch.from_numpy(rng.integers(0, self.classes, count)),
            "area": torch.from_numpy(size.prod(axis=1)),
            "iscrowd": torch.from_numpy((rng.random(count) < 0.05).astype(np.int64)),
            "visibility": torch.from_numpy(rng.random(count, dtype=np.float32)),
            "track_id": torch.from_numpy(rng.integers(0, 4096, count)),
        }
        return torch.from_numpy(image), target


def collate_as_list(samples):
    images, targets = zip(*samples)
    return torch.stack(images), list(targets)


def collate_packed(samples):
    images, targets = zip(*samples)
    packed = {name: torch.cat([t[name] for t in targets]) for name in FIELDS}
    packed["counts"] = torch.tensor([len(t["labels"]) for t in targets])
    return torch.stack(images), packed


def flatten_targets(targets):
    if isinstance(targets, dict):
        return targets
    flat = {name: torch.cat([t[name] for t in targets]) for name in FIELDS}
    flat["counts"] = torch.tensor([len(t["labels"]) for t in targets])
    return flat


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class TileDetector(nn.Module):
    def __init__(self, side, patch, dim, depth, classes):
        super().__init__()
        self.grid, self.patch = side // patch, patch
        self.embed = nn.Linear(patch * patch, dim)
        self.position = nn.Parameter(torch.randn(self.grid ** 2, dim) * 0.02)
        self.blocks = nn.ModuleList(Block(dim, dim // 64) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 4 + classes + 1)

    def forward(self, images):
        b, g, p = images.shape[0], self.grid, self.patch
        x = images.view(b, g, p, g, p).transpose(2, 3).reshape(b, g * g, p * p)
        x = self.embed(x) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def detection_loss(out, target, grid, batch):
    """Every box supervises the cell its centre falls into; objectness over all cells."""
    owner = torch.repeat_interleave(torch.arange(batch, device=out.device), target["counts"],
                                    output_size=target["labels"].shape[0])
    cell = (target["boxes"][:, :2] * grid).long().clamp_(0, grid - 1)
    flat = owner * grid * grid + cell[:, 1] * grid + cell[:, 0]
    rows = out.reshape(-1, out.shape[-1]).float()
    picked = rows.index_select(0, flat)
    weight = target["visibility"] * (1 - target["iscrowd"].float()) / (target["area"] + 0.1)
    box = (F.l1_loss(picked[:, :4].sigmoid(), target["boxes"], reduction="none").mean(-1) * weight).mean()
    label = F.cross_entropy(picked[:, 4:-1], target["labels"])
    hit = torch.zeros(rows.shape[0], device=out.device).index_fill_(0, flat, 1.0)
    return box + label + F.binary_cross_entropy_with_logits(rows[:, -1], hit)


def endless(loader):
    while True:
        yield from loader


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    big = device.type == "cuda"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(65536, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    side, batch, classes = 96, (96 if big else 8), 12
    model = TileDetector(side, 8, 1024 if big else 64, 8 if big else 2, classes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=big)
    loader = DataLoader(ThermalTiles(200_000 if big else 256, side, 20, classes), batch_size=batch, shuffle=True,
                        num_workers=6 if big else 0, pin_memory=big, drop_last=True, persistent_workers=big,
                        collate_fn=collate_as_list if args.variant == "slow" else collate_packed)
    batches = endless(loader)
    seen = [0]

    def step():
        images, targets = next(batches)
        target = {k: v.to(device, non_blocking=True) for k, v in flatten_targets(targets).items()}
        images = images.to(device, non_blocking=True).float().div_(255.0)
        with torch.autocast(device.type, dtype=torch.bfloat16):
            out = model(images)
        loss = detection_loss(out, target, model.grid, batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        seen[0] += 1
        if seen[0] % 50 == 0:
            print(json.dumps({"iter": seen[0], "loss": round(loss.item(), 4)}), flush=True)

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
