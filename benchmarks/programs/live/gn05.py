"""Point-cloud encoder training: points are pooled into voxels at several resolutions."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gn05"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1400
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


class Scans:
    """A few resident synthetic sweeps: scan id, coordinates in metres, reflectance."""

    def __init__(self, scans, points, device, copies=3):
        self.items = []
        for _ in range(copies):
            batch = torch.arange(scans, device=device).repeat_interleave(points)
            r = torch.rand(scans * points, device=device).square() * 60
            phi = torch.rand_like(r) * 6.2832
            xyz = torch.stack([r * phi.cos(), r * phi.sin(), torch.randn_like(r).abs() * 1.5], -1)
            label = torch.randint(16, (scans * points,), device=device)
            self.items.append((batch, xyz, torch.rand(scans * points, 1, device=device), label))
        self.turn = 0

    def next(self):
        item = self.items[self.turn % len(self.items)]
        self.turn += 1
        return item


class VoxelGrid:
    def __init__(self, size, variant):
        self.size = size
        self.variant = variant

    def __call__(self, batch, xyz):
        cell = torch.floor(xyz / self.size).long()
        coords = torch.cat([batch[:, None], cell - cell.amin(0)], 1)
        return self.assign(coords)

    def assign(self, coords):
        if self.variant == "slow":
            voxels, inverse, count = torch.unique(coords, dim=0, return_inverse=True, return_counts=True)
            return voxels, inverse, count
        extent = coords.amax(0) + 1
        key = ((coords[:, 0] * extent[1] + coords[:, 1]) * extent[2] + coords[:, 2]) * extent[3] + coords[:, 3]
        key, inverse, count = torch.unique(key, return_inverse=True, return_counts=True)
        parts = []
        for e in (extent[3], extent[2], extent[1]):
            parts.append(key % e)
            key = key // e
        return torch.stack([key] + parts[::-1], 1), inverse, count


def pool_mean(x, inverse, count):
    out = torch.zeros(count.numel(), x.shape[1], device=x.device, dtype=torch.float32)
    out = out.index_add(0, inverse, x.float())
    return out / count[:, None]


class Hidden(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.lin = nn.Linear(cin, cout)

    def forward(self, x):
        return F.relu(self.lin(x))


class Level(nn.Module):
    def __init__(self, size, width, variant):
        super().__init__()
        self.grid = VoxelGrid(size, variant)
        self.voxel = nn.Sequential(Hidden(11, 2 * width), Hidden(2 * width, 2 * width), Hidden(2 * width, width))

    def forward(self, batch, xyz, refl):
        voxels, inverse, count = self.grid(batch, xyz)
        centre = pool_mean(xyz, inverse, count)
        spread = pool_mean((xyz - centre[inverse]).square(), inverse, count).sqrt()
        shine = pool_mean(refl, inverse, count)
        corner = voxels[:, 1:] * self.grid.size / 50
        pooled = torch.cat([centre / 50, spread, shine, corner, count[:, None].float().log()], 1)
        return self.voxel(pooled), inverse


class Encoder(nn.Module):
    def __init__(self, width, variant):
        super().__init__()
        self.levels = nn.ModuleList(Level(s, width, variant) for s in (0.25, 1.0))
        self.head = nn.Linear(width, 16)

    def forward(self, batch, xyz, refl):
        total = None
        for level in self.levels:
            v, inverse = level(batch, xyz, refl)
            score = self.head(v)
            total = score.index_select(0, inverse) if total is None else total + score.index_select(0, inverse)
        return total


class Trainer:
    def __init__(self, args, device):
        big = device.type == "cuda"
        self.data = Scans(8 if big else 2, 400_000 if big else 2_000, device)
        self.model = Encoder(16, args.variant).to(device)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.running = torch.zeros((), device=device)

    def step(self):
        batch, xyz, refl, label = self.data.next()
        loss = F.cross_entropy(self.model(batch, xyz, refl), label)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.running.lerp_(loss.detach(), 0.05)


def build(args, device):
    return Trainer(args, device).step


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    run_loop(args, device, build(args, device))


if __name__ == "__main__":
    main()
