"""Regression of jet properties from ragged particle clouds served by worker processes."""
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

PROGRAM = "ga03"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 600
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


FIELDS = 19


def raise_file_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class JetArchive(Dataset):
    """All particles in one long array; a jet is a slice of it."""

    def __init__(self, jets, low, high):
        rng = np.random.default_rng(3)
        sizes = rng.integers(low, high, jets)
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        self.particles = rng.standard_normal((int(self.starts[-1]), FIELDS), dtype=np.float32)
        self.targets = rng.standard_normal((jets, 4), dtype=np.float32)

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, i):
        cloud = self.particles[self.starts[i]:self.starts[i + 1]]
        order = np.argsort(-cloud[:, 0])
        cloud = cloud[order]
        cloud = cloud - cloud.mean(0, keepdims=True)
        return torch.from_numpy(cloud), torch.from_numpy(self.targets[i])


def keep_ragged(samples):
    clouds, targets = zip(*samples)
    return list(clouds), list(targets)


def join_ragged(samples):
    clouds, targets = zip(*samples)
    sizes = torch.tensor([len(c) for c in clouds])
    return torch.cat(clouds), sizes, torch.stack(targets)


def to_device(batch, device):
    if len(batch) == 2:
        clouds, targets = batch
        batch = torch.cat(clouds), torch.tensor([len(c) for c in clouds]), torch.stack(targets)
    points, sizes, targets = (t.to(device, non_blocking=True) for t in batch)
    owner = torch.repeat_interleave(torch.arange(sizes.shape[0], device=device), sizes,
                                    output_size=points.shape[0])
    return points, owner, targets


class JetNet(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        layers, fan = [], FIELDS
        for _ in range(depth):
            layers += [nn.Linear(fan, width), nn.LayerNorm(width), nn.GELU()]
            fan = width
        self.points = nn.Sequential(*layers)
        self.gate = nn.Linear(width, 1)
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 4))

    def forward(self, points, owner, jets):
        h = self.points(points)
        h = h * torch.sigmoid(self.gate(h))
        pooled = torch.zeros(jets, h.shape[1], dtype=h.dtype, device=h.device).index_add_(0, owner, h)
        return self.head(pooled / 64)


class Feed:
    """Endless stream over a loader, epoch after epoch."""

    def __init__(self, loader):
        self.loader, self.stream = loader, iter(loader)
        self.epoch = 0

    def take(self):
        try:
            return next(self.stream)
        except StopIteration:
            self.epoch += 1
            self.stream = iter(self.loader)
            return next(self.stream)


def main():
    args = parse_args()
    torch.manual_seed(0)
    raise_file_limit()
    device = torch.device(args.device)
    on_gpu = device.type == "cuda"
    jets, batch, width, depth, workers = (60000, 128, 512, 6, 8) if on_gpu else (2000, 32, 32, 2, 1)
    archive = JetArchive(jets, 20, 140)
    loader = DataLoader(archive, batch_size=batch, shuffle=True, drop_last=True, num_workers=workers,
                        persistent_workers=True, prefetch_factor=3,
                        collate_fn=join_ragged if args.variant == "fixed" else keep_ragged)
    feed = Feed(loader)
    model = JetNet(width, depth).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=on_gpu)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10000)

    def step():
        points, owner, targets = to_device(feed.take(), device)
        loss = F.smooth_l1_loss(model(points, owner, batch), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()

    run_loop(args, device, step)


if __name__ == "__main__":
    main()
