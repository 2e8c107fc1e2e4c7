"""Neural signed distance field fitted to one laser scan."""
import argparse
import json
import statistics
import time
import numpy as np
from scipy.spatial import cKDTree

import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gj04"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 400
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


def make_scan(count, rng):
    """A bumpy closed surface, seen as a cloud with normals."""
    d = rng.normal(size=(count, 3))
    d /= np.linalg.norm(d, axis=1, keepdims=True)
    r = 0.6 + 0.05 * np.sin(7 * d[:, :1]) * np.cos(5 * d[:, 1:2]) + 0.02 * np.sin(23 * d[:, 2:])
    return d * r, d


class Scan:
    def __init__(self, points, normals, variant):
        self.points, self.normals = points, normals
        self.variant = variant
        self.tree = None

    def index(self):
        if self.variant == "fixed" and self.tree is not None:
            return self.tree
        self.tree = cKDTree(self.points)
        return self.tree

    def signed_distance(self, q):
        dist, idx = self.index().query(q, k=1, workers=8)
        side = np.einsum("ij,ij->i", q - self.points[idx], self.normals[idx])
        return np.where(side < 0, -dist, dist)


class Sampler:
    def __init__(self, scan, near, far, rng):
        self.scan, self.near, self.far, self.rng = scan, near, far, rng

    def draw(self):
        pick = self.rng.integers(0, len(self.scan.points), self.near)
        sigma = self.rng.choice([0.005, 0.05], size=(self.near, 1), p=[0.7, 0.3])
        close = self.scan.points[pick] + sigma * self.rng.normal(size=(self.near, 3))
        wide = self.rng.uniform(-1, 1, size=(self.far, 3))
        q = np.concatenate([close, wide])
        return q.astype(np.float32), self.scan.signed_distance(q).astype(np.float32)


class Field(nn.Module):
    def __init__(self, width, depth, bands):
        super().__init__()
        self.register_buffer("freq", 2.0 ** torch.arange(bands) * 3.1416)
        sizes = [3 + 6 * bands] + [width] * depth
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.last = nn.Linear(width, 1)

    def forward(self, x):
        e = (x[..., None] * self.freq).flatten(1)
        h = torch.cat([x, e.sin(), e.cos()], 1)
        for lin in self.hidden:
            h = F.softplus(lin(h), beta=100)
        return self.last(h)[:, 0]


class Trainer:
    def __init__(self, sampler, field, device):
        self.sampler, self.field, self.device = sampler, field, device
        self.opt = torch.optim.Adam(field.parameters(), lr=3e-4, foreach=True)
        self.step_no = 0

    def step(self):
        q, sdf = self.sampler.draw()
        x = torch.from_numpy(q).to(self.device).requires_grad_(True)
        target = torch.from_numpy(sdf).to(self.device)
        pred = self.field(x)
        grad, = torch.autograd.grad(pred.sum(), x, create_graph=True)
        loss = F.l1_loss(pred, target) + 0.1 * (grad.norm(dim=1) - 1).square().mean()
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.step_no += 1
        if self.step_no % 50 == 0:
            print(f"# step {self.step_no} loss {loss.item():.5f}", flush=True)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    rng = np.random.default_rng(0)
    big = device.type == "cuda"
    points, normals = make_scan(180_000 if big else 4000, rng)
    scan = Scan(points, normals, args.variant)
    near, far = (12288, 4096) if big else (96, 32)
    field = Field(512 if big else 32, 6 if big else 2, 6).to(device)
    trainer = Trainer(Sampler(scan, near, far, rng), field, device)
    run_loop(args, device, trainer.step)


if __name__ == "__main__":
    main()
