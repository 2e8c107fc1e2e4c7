"""Ranking model on two ranks; item features come from a shared on-disk store."""
import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from filelock import FileLock
from torch.nn.parallel import DistributedDataParallel

GUARD = {"slow": FileLock, "fixed": lambda path: nullcontext()}


class FeatureStore:
    """Blocks of item features; a block is replaced whole, by rename."""

    def __init__(self, root, block, dim, guard):
        self.root, self.block, self.dim, self.guard = Path(root), block, dim, guard
        self.lock_path = str(self.root / "store.lock")
        self.open_blocks = {}

    def path(self, index):
        return self.root / f"items-{index:03d}.npy"

    def write(self, index, array):
        partial = self.path(index).with_suffix(".part")
        with FileLock(self.lock_path):
            with open(partial, "wb") as f:
                np.save(f, array)
            os.replace(partial, self.path(index))

    def load(self, index):
        stamp = self.path(index).stat().st_mtime_ns
        held = self.open_blocks.get(index)
        if held is None or held[0] != stamp:
            held = (stamp, np.load(self.path(index)))
            self.open_blocks[index] = held
        return held[1]

    def fetch(self, items):
        out = np.empty((len(items), self.dim), np.float32)
        with self.guard(self.lock_path):
            where = items // self.block
            for index in np.unique(where):
                rows = np.flatnonzero(where == index)
                out[rows] = self.load(int(index))[items[rows] % self.block]
        return torch.from_numpy(out)


class Ranker(nn.Module):
    def __init__(self, users, dim, width):
        super().__init__()
        self.users = nn.Embedding(users, 64)
        self.lift = nn.Linear(dim + 64, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(2))
        self.score = nn.Linear(width, 1)

    def forward(self, users, items):
        x = F.silu(self.lift(torch.cat([self.users(users), items], -1)))
        for block in self.blocks:
            x = x + block(x)
        return self.score(x).squeeze(-1)


class Impressions:
    def __init__(self, rank, batch, users, items):
        self.rng = np.random.default_rng(900 + rank)
        self.batch, self.users, self.items = batch, users, items

    def draw(self):
        users = torch.from_numpy(self.rng.integers(self.users, size=self.batch))
        items = (self.rng.random(self.batch) ** 2 * self.items).astype(np.int64)
        labels = torch.from_numpy((self.rng.random(self.batch) < 0.3).astype(np.float32))
        return users, items, labels


@contextmanager
def shared_folder(rank):
    holder = [tempfile.mkdtemp(prefix="features-") if rank == 0 else None]
    dist.broadcast_object_list(holder, src=0)
    try:
        yield holder[0]
        dist.barrier()
    finally:
        if rank == 0:
            shutil.rmtree(holder[0], ignore_errors=True)


def fill(store, items, seed):
    rng = np.random.default_rng(seed)
    for index in range(items // store.block):
        store.write(index, rng.standard_normal((store.block, store.dim), dtype=np.float32))


def everyone_done(local):
    flag = torch.tensor([int(local)])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def run(args, rank, folder):
    torch.manual_seed(0)
    store = FeatureStore(folder, 4096, args.dim, GUARD[args.variant])
    if rank == 0:
        fill(store, args.items, seed=4)
    dist.barrier()
    model = DistributedDataParallel(Ranker(args.users, args.dim, args.width))
    opt = torch.optim.Adagrad(model.parameters(), lr=0.02)
    stream = Impressions(rank, args.batch, args.users, args.items)
    times, total = [], 0.0
    began = time.perf_counter()
    for _ in range(args.steps):
        t0 = time.perf_counter()
        users, items, labels = stream.draw()
        scores = model(users, store.fetch(items))
        loss = F.binary_cross_entropy_with_logits(scores, labels)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        total += loss.item()
        times.append((time.perf_counter() - t0) * 1e3)
        if everyone_done(time.perf_counter() - began > args.max_seconds):
            break
    return times, total / len(times)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=20)
    ap.add_argument("--batch", type=int, default=1024)
    ap.add_argument("--users", type=int, default=4000)
    ap.add_argument("--items", type=int, default=65536)
    ap.add_argument("--dim", type=int, default=192)
    ap.add_argument("--width", type=int, default=224)
    args = ap.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with shared_folder(rank) as folder:
        times, loss = run(args, rank, folder)
    if rank == 0:
        kept = times[2:] or times
        print(json.dumps({"case": "re03", "variant": args.variant, "steps": len(times), "loss": round(loss, 4),
                          "mean_step_ms": round(statistics.fmean(kept), 2),
                          "median_step_ms": round(statistics.median(kept), 2)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
