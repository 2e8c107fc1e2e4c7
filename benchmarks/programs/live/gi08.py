"""Surrogate of a chemical-kinetics integrator: a very wide residual-free tower fitted to simulated reactor states."""
import argparse
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

PROGRAM = "gi08"
CHOICES = ["healthy"]
DEFAULT_STEPS = 400
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


SPECIES = 32


class ReactorStream(IterableDataset):
    """Each item is a whole batch: states and their rates after a few explicit sub-steps."""

    def __init__(self, rows):
        self.rows = rows
        rng = np.random.default_rng(0)
        self.rates = (rng.random((SPECIES, SPECIES), dtype=np.float32) - 0.5) / SPECIES

    def __iter__(self):
        info = get_worker_info()
        rng = np.random.default_rng(100 + (info.id if info else 0))
        while True:
            state = rng.random((self.rows, SPECIES), dtype=np.float32)
            later = state.copy()
            for _ in range(3):
                later += 0.1 * np.tanh(later @ self.rates) * (1.0 - later)
            yield torch.from_numpy(state), torch.from_numpy(later - state)


class Tower(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.inp = nn.Linear(SPECIES, width)
        self.hidden = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.out = nn.Linear(width, SPECIES)

    def forward(self, x):
        x = F.relu(self.inp(x))
        for layer in self.hidden:
            x = F.relu(layer(x))
        return self.out(x)


class Fitter:
    def __init__(self, device):
        self.device = device
        big = device.type == "cuda"
        self.model = self.make_model(big).to(device)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, T_max=10_000)
        loader = DataLoader(ReactorStream(32768 if big else 64), batch_size=None,
                            num_workers=4 if big else 1, prefetch_factor=2)
        self.feed = iter(loader)
        self.curve = []

    def make_model(self, big):
        with torch.device(self.device):
            return Tower(8192, 5) if big else Tower(128, 4)

    def step(self):
        state, rate = next(self.feed)
        state, rate = state.to(self.device), rate.to(self.device)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            pred = self.model(state)
        loss = F.mse_loss(pred.float(), rate)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.sched.step()
        self.curve.append(loss.item())


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    fitter = Fitter(device)
    run_loop(args, device, fitter.step)


if __name__ == "__main__":
    main()
