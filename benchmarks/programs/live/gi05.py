"""Fourier neural operator trained to advance 2-D flow snapshots; trajectories lie in shard files."""
import argparse
import json
import os
import shutil
import statistics
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PROGRAM = "gi05"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 3000
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=40.0)
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


HISTORY = 10


def write_shards(folder, n_shard, n_traj, n_time, size):
    rng = np.random.default_rng(3)
    x = np.linspace(0, 2 * np.pi, size, endpoint=False, dtype=np.float32)
    t = np.linspace(0, 1, n_time, dtype=np.float32)
    paths = []
    for s in range(n_shard):
        k = rng.integers(1, 5, (n_traj, 2)).astype(np.float32)
        ph = rng.random((n_traj, 1), dtype=np.float32) * 6.28
        ax = np.sin(k[:, :1, None] * x + 3 * t[None, :, None] + ph[:, :, None])
        ay = np.cos(k[:, 1:, None] * x - 2 * t[None, :, None])
        u = (ax[:, :, :, None] * ay[:, :, None, :]).astype(np.float32)
        path = os.path.join(folder, f"shard{s:03d}.npz")
        np.savez(path, u=u, viscosity=rng.random(n_traj).astype(np.float32))
        paths.append(path)
    return paths


class TrajectoryWindows(Dataset):
    def __init__(self, paths, n_traj, n_time, variant):
        self.paths, self.n_traj = paths, n_traj
        self.windows = n_time - HISTORY
        self.variant = variant
        self.opened = {}

    def __len__(self):
        return len(self.paths) * self.n_traj * self.windows

    def shard(self, i):
        if i not in self.opened:
            handle = np.load(self.paths[i])
            if self.variant == "fixed":
                handle = {name: handle[name] for name in handle.files}
            self.opened[i] = handle
        return self.opened[i]

    def __getitem__(self, index):
        index, start = divmod(index, self.windows)
        which, traj = divmod(index, self.n_traj)
        shard = self.shard(which)
        clip = shard["u"][traj, start:start + HISTORY + 1]
        nu = shard["viscosity"][traj]
        return torch.from_numpy(clip[:HISTORY].copy()), torch.from_numpy(clip[HISTORY:].copy()), np.float32(nu)


class SpectralConv(nn.Module):
    def __init__(self, ch, modes):
        super().__init__()
        self.modes = modes
        self.w1 = nn.Parameter(torch.randn(ch, ch, modes, modes, 2) / ch)
        self.w2 = nn.Parameter(torch.randn(ch, ch, modes, modes, 2) / ch)

    def forward(self, x):
        m = self.modes
        ft = torch.fft.rfft2(x)
        out = torch.zeros_like(ft)
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", ft[:, :, :m, :m], torch.view_as_complex(self.w1))
        out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", ft[:, :, -m:, :m], torch.view_as_complex(self.w2))
        return torch.fft.irfft2(out, s=x.shape[-2:])


class FNO(nn.Module):
    def __init__(self, ch=48, modes=12, depth=4):
        super().__init__()
        self.lift = nn.Conv2d(HISTORY + 3, ch, 1)
        self.spec = nn.ModuleList(SpectralConv(ch, modes) for _ in range(depth))
        self.skip = nn.ModuleList(nn.Conv2d(ch, ch, 1) for _ in range(depth))
        self.head = nn.Sequential(nn.Conv2d(ch, 128, 1), nn.GELU(), nn.Conv2d(128, 1, 1))

    def forward(self, u, nu, grid):
        b, _, h, w = u.shape
        x = torch.cat((u, grid.expand(b, -1, -1, -1), nu.view(b, 1, 1, 1).expand(b, 1, h, w)), 1)
        x = self.lift(x)
        for s, k in zip(self.spec, self.skip):
            x = F.gelu(s(x) + k(x))
        return self.head(x)


def batches(loader):
    while True:
        yield from loader


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    big = device.type == "cuda"
    n_shard, n_traj, n_time, size = (24, 48, 20, 64) if big else (3, 4, 14, 64)
    folder = tempfile.mkdtemp(prefix="flow_")
    try:
        paths = write_shards(folder, n_shard, n_traj, n_time, size)
        data = TrajectoryWindows(paths, n_traj, n_time, args.variant)
        loader = DataLoader(data, batch_size=24 if big else 2, shuffle=True, drop_last=True,
                            num_workers=8 if big else 1, persistent_workers=True, pin_memory=big)
        model = FNO().to(device) if big else FNO(16, 6, 2)
        opt = torch.optim.Adam(model.parameters(), 1e-3)
        axis = torch.linspace(0, 1, size, device=device)
        grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij")).unsqueeze(0)
        stream = batches(loader)

        def step():
            u, target, nu = next(stream)
            u = u.to(device, non_blocking=True)
            target = target.to(device, non_blocking=True)
            nu = nu.to(device, non_blocking=True)
            pred = model(u, nu, grid)
            loss = ((pred - target).flatten(1).norm(dim=1) / target.flatten(1).norm(dim=1).clamp(min=1e-3)).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()

        run_loop(args, device, step)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
