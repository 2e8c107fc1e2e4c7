"""Trains a centre-point object detector with annotations of varying number per image."""
import argparse
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PROGRAM = "gk02"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 800
WARMUP = 4


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


FIELDS = ("boxes", "labels", "area", "iscrowd", "visibility")


class Street(Dataset):
    """Synthetic street scenes: crops of a pool of frames with boxes."""

    def __init__(self, length, size):
        self.length, self.size = length, size
        self.pool = np.random.default_rng(0).integers(0, 256, (16, 3, size + 64, size + 64), dtype=np.uint8)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        y, x = rng.integers(0, 64, 2)
        image = self.pool[index % 16, :, y:y + self.size, x:x + self.size]
        if rng.random() < 0.5:
            image = image[:, :, ::-1]
        n = int(rng.integers(3, 30))
        centre = rng.random((n, 2), dtype=np.float32) * (self.size - 1)
        extent = rng.random((n, 2), dtype=np.float32) * 60 + 4
        target = {"boxes": torch.from_numpy(np.concatenate([centre, extent], 1)),
                  "labels": torch.from_numpy(rng.integers(0, 20, n)),
                  "area": torch.from_numpy(extent.prod(1)),
                  "iscrowd": torch.from_numpy((rng.random(n) < 0.05)),
                  "visibility": torch.from_numpy(rng.random(n, dtype=np.float32))}
        return torch.from_numpy(np.ascontiguousarray(image)), target


def pack(targets):
    packed = {k: torch.cat([t[k] for t in targets]) for k in FIELDS}
    counts = torch.tensor([len(t["labels"]) for t in targets])
    packed["image"] = torch.repeat_interleave(torch.arange(len(targets)), counts).to(packed["labels"].device)
    return packed


def collate_lists(samples):
    images, targets = zip(*samples)
    return torch.stack(images), list(targets)


def collate_packed(samples):
    images, targets = zip(*samples)
    return torch.stack(images), pack(targets)


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.a = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.b = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(cout), nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False) if (cin, stride) != (cout, 1) else nn.Identity()

    def forward(self, x):
        y = F.relu(self.na(self.a(x)))
        return F.relu(self.nb(self.b(y)) + self.skip(x))


class Detector(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, w, 7, 2, 3, bias=False), nn.BatchNorm2d(w), nn.ReLU(),
                                  Residual(w, w, 1), Residual(w, 2 * w, 2), Residual(2 * w, 2 * w, 1),
                                  Residual(2 * w, 4 * w, 2), Residual(4 * w, 4 * w, 1), Residual(4 * w, 4 * w, 1))
        self.head = nn.Conv2d(4 * w, 20 + 5, 1)

    def forward(self, x):
        return self.head(self.body(x))


class Trainer:
    def __init__(self, device, variant):
        big = device.type == "cuda"
        self.device = device
        self.size, batch, workers, width = (256, 32, 8, 64) if big else (64, 4, 1, 8)
        self.loader = DataLoader(Street(batch * 250, self.size), batch_size=batch, shuffle=True, num_workers=workers,
                                 collate_fn=collate_packed if variant == "fixed" else collate_lists,
                                 pin_memory=big, persistent_workers=True, drop_last=True)
        self.model = Detector(width).to(device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9, foreach=True)
        self.batches = self.forever()

    def forever(self):
        while True:
            yield from self.loader

    def to_device(self, images, targets):
        images = images.to(self.device, non_blocking=True)
        if isinstance(targets, list):
            targets = pack([{k: v.to(self.device, non_blocking=True) for k, v in t.items()} for t in targets])
        else:
            targets = {k: v.to(self.device, non_blocking=True) for k, v in targets.items()}
        return images, targets

    def loss(self, out, t):
        stride = self.size // out.shape[-1]
        x, y = (t["boxes"][:, 0] / stride).long(), (t["boxes"][:, 1] / stride).long()
        picked = out.permute(0, 2, 3, 1)[t["image"], y, x].float()
        weight = t["visibility"] * (~t["iscrowd"])
        classes = F.cross_entropy(picked[:, :20], t["labels"], reduction="none")
        boxes = F.smooth_l1_loss(picked[:, 20:24], t["boxes"] / self.size, reduction="none").sum(1)
        boxes = boxes * (2 - t["area"] / self.size ** 2)
        background = F.softplus(out[:, 24].float()).mean()
        return (weight * (classes + boxes)).sum() / weight.sum().clamp(min=1) + background

    def step(self):
        images, targets = self.to_device(*next(self.batches))
        x = images.to(memory_format=torch.channels_last).float().div_(255)
        with torch.autocast(self.device.type, torch.bfloat16):
            out = self.model(x)
        loss = self.loss(out, targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    trainer = Trainer(device, args.variant)
    run_loop(args, device, trainer.step)


if __name__ == "__main__":
    main()
