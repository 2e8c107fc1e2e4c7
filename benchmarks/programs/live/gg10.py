"""Two-tower retrieval: user histories against sampled items, with a periodic ranking check."""
import argparse
import json
import statistics
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PROGRAM = "gg10"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 80
WARMUP = 4
BATCH, HISTORY, NEGATIVES = 256, 32, 32


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


class Catalogue:
    """Items with popularity, and users with a stored history of items."""

    def __init__(self, items, users, seed=0):
        rng = np.random.default_rng(seed)
        self.items, self.users = items, users
        popularity = 1.0 / np.arange(1, items + 1) ** 0.7
        cdf = np.cumsum(popularity / popularity.sum())
        self.history = np.searchsorted(cdf, rng.random((users, HISTORY + 1))).clip(0, items - 1)
        self.log_popularity = np.log(popularity / popularity.sum()).astype(np.float32)


class Drawer:
    """Distinct candidate items for one user, skipping those already seen."""

    def __init__(self, catalogue, source):
        self.catalogue, self.source = catalogue, source

    def one(self, seen):
        drawn = self.source.choice(self.catalogue.items, NEGATIVES + 8, replace=False)
        fresh = drawn[~np.isin(drawn, seen)]
        return fresh[:NEGATIVES]

    def many(self, histories):
        out = np.empty((len(histories), NEGATIVES), dtype=np.int64)
        for row, seen in zip(out, histories):
            row[:] = self.one(seen)
        return out


SOURCES = {"slow": np.random.RandomState, "fixed": np.random.default_rng}


class Tower(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, 4 * width), nn.GELU(), nn.Linear(4 * width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


class Retriever(nn.Module):
    def __init__(self, items, width=256):
        super().__init__()
        self.table = nn.Embedding(items, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.reader = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.user, self.item = Tower(width, width), Tower(width, width)

    def users(self, history):
        return self.user(self.reader(self.table(history)).mean(1))

    def forward(self, history, candidates):
        return torch.einsum("bd,bkd->bk", self.users(history), self.item(self.table(candidates))) * 16


class Trainer:
    def __init__(self, args, device):
        self.device = device
        self.catalogue = Catalogue(60_000, 200_000)
        self.rng = np.random.default_rng(1)
        self.drawer = Drawer(self.catalogue, SOURCES[args.variant](2))
        self.model = Retriever(self.catalogue.items).to(device)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=device.type == "cuda")
        self.prior = torch.from_numpy(self.catalogue.log_popularity).to(device)
        self.target = torch.zeros(BATCH, dtype=torch.long, device=device)
        self.count = 0

    def to_device(self, array):
        tensor = torch.from_numpy(array)
        if self.device.type == "cuda":
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)

    def batch(self):
        rows = self.catalogue.history[self.rng.integers(0, self.catalogue.users, BATCH)]
        candidates = np.concatenate([rows[:, -1:], self.drawer.many(rows)], 1)
        return self.to_device(rows[:, :-1].copy()), self.to_device(candidates)

    @torch.no_grad()
    def check(self, history, wanted):
        items = self.model.item(self.model.table.weight)
        scores = self.model.users(history) @ items.t() + 0.01 * self.prior
        best = scores.topk(100, -1).indices
        return (best == wanted[:, None]).any(-1).float().mean()

    def step(self):
        history, candidates = self.batch()
        with torch.autocast(self.device.type, torch.bfloat16):
            logits = self.model(history, candidates)
        loss = F.cross_entropy(logits.float(), self.target)
        loss.backward()
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        self.count += 1
        if self.count % 50 == 0:
            print(json.dumps({"step": self.count, "recall": round(self.check(history, candidates[:, 0]).item(), 4)}), flush=True)


def main():
    args = parse_args()
    device = torch.device(args.device)
    torch.manual_seed(0)
    run_loop(args, device, Trainer(args, device).step)


if __name__ == "__main__":
    main()
