"""Tabular click model: worker processes assemble feature batches, a deep dense tower is trained in bfloat16."""
import argparse
import collections
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

PROGRAM = "ga08"
CHOICES = ["healthy"]
DEFAULT_STEPS = 260
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


class ClickStream(IterableDataset):
    """Endless whole batches with noise, clipping, and a few crossed columns."""

    def __init__(self, rows, columns, batch, classes):
        rng = np.random.default_rng(0)
        self.base = rng.standard_normal((rows, columns), dtype=np.float32)
        self.labels = rng.integers(0, classes, rows)
        self.batch = batch

    def assemble(self, rng):
        lo = int(rng.integers(0, len(self.base) - self.batch))
        x = self.base[lo:lo + self.batch].copy()
        x += 0.05 * rng.standard_normal(x.shape, dtype=np.float32)
        np.clip(x, -4.0, 4.0, out=x)
        quarter = x.shape[1] // 4
        x[:, :quarter] = x[:, :quarter] * x[:, quarter:2 * quarter]
        x -= x.mean(0, keepdims=True)
        return torch.from_numpy(x), torch.from_numpy(self.labels[lo:lo + self.batch].copy())

    def __iter__(self):
        info = get_worker_info()
        rng = np.random.default_rng(100 + (info.id if info else 0))
        while True:
            yield self.assemble(rng)


class Tower(nn.Module):
    def __init__(self, columns, width, depth, classes):
        super().__init__()
        sizes = [columns] + [width] * depth
        layers = []
        for a, b in zip(sizes[:-1], sizes[1:]):
            layers += [nn.Linear(a, b), nn.ReLU(inplace=True)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(x))


class Monitor:
    """Reads the loss of every step and keeps short windows of a few quantities."""

    def __init__(self, window=50):
        self.windows = collections.defaultdict(lambda: collections.deque(maxlen=window))
        self.lines = []

    def note(self, **values):
        for name, value in values.items():
            value = value.item() if torch.is_tensor(value) else value
            self.windows[name].append(value)

    def report(self, step):
        parts = [f"{name}={statistics.fmean(values):.4f}" for name, values in sorted(self.windows.items())]
        self.lines.append(f"step {step} " + " ".join(parts))


class Trainer:
    def __init__(self, model, loader, holdout, device):
        self.model, self.device = model, device
        self.stream, self.holdout = iter(loader), holdout
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
        self.monitor, self.count = Monitor(), 0

    def load(self, pair):
        x, y = pair
        x = x.to(self.device, non_blocking=True).to(torch.bfloat16)
        return x, y.to(self.device, non_blocking=True)

    @torch.no_grad()
    def evaluate(self):
        x, y = self.load(self.holdout)
        logits = self.model(x)
        self.monitor.note(holdout=(logits.argmax(-1) == y).float().mean())
        self.monitor.report(self.count)

    def train_step(self):
        x, y = self.load(next(self.stream))
        loss = F.cross_entropy(self.model(x).float(), y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        value = loss.item()
        if not np.isfinite(value):
            raise RuntimeError(f"loss is {value} at step {self.count}")
        self.monitor.note(loss=value, norm=norm)
        self.count += 1
        if self.count % 60 == 0:
            self.evaluate()


def main():
    args = parse_args()
    torch.manual_seed(0)
    device = torch.device(args.device)
    on_gpu = device.type == "cuda"
    columns, width, depth, batch, workers = (192, 8192, 6, 32768, 4) if on_gpu else (16, 64, 3, 64, 1)
    data = ClickStream(4 * batch, columns, batch, classes=64)
    holdout = data.assemble(np.random.default_rng(1))
    loader = DataLoader(data, batch_size=None, num_workers=workers, pin_memory=on_gpu, prefetch_factor=3)
    model = Tower(columns, width, depth, 64).to(device, torch.bfloat16)
    trainer = Trainer(model, loader, holdout, device)
    run_loop(args, device, trainer.train_step)


if __name__ == "__main__":
    main()
