"""Exact deduplication of n-gram fingerprints: sort one shard per step, keep the first record of every run."""
import argparse
import json
import statistics
import time
from dataclasses import dataclass
from typing import Dict, Tuple

import torch


@dataclass
class JobConfig:
    fingerprints: int = 160_000_000
    distinct: int = 110_000_000
    chunk: int = 8_000_000


class FingerprintShards:
    """Simulates the shards of a corpus; a shard is the base table under another 64-bit salt.

    The salt stands for the shard's own hash seed, it costs one pass over the keys.
    """

    def __init__(self, cfg: JobConfig, device):
        self.cfg, self.device = cfg, device
        gen = torch.Generator(device=device).manual_seed(11)
        self.base = torch.empty(cfg.fingerprints, dtype=torch.int64, device=device)
        for lo in range(0, cfg.fingerprints, cfg.chunk):
            part = self.base[lo:lo + cfg.chunk]
            ids = torch.randint(0, cfg.distinct, part.shape, generator=gen, device=device)
            part.copy_(self.mix(ids))
        self.keys = torch.empty_like(self.base)
        self.index = 0

    @staticmethod
    def mix(x):
        x = (x ^ (x >> 30)) * -4658895280553007687
        x = (x ^ (x >> 27)) * -7723592293110705685
        return x ^ (x >> 31)

    def load(self):
        self.index += 1
        salt = int(self.mix(torch.tensor(self.index * 7919)))
        return torch.bitwise_xor(self.base, salt, out=self.keys)


class RunLengths:
    """Boundaries of equal runs in a sorted key array."""

    def __init__(self, keys):
        change = torch.ones(keys.shape[0], dtype=torch.bool, device=keys.device)
        torch.ne(keys[1:], keys[:-1], out=change[1:])
        self.starts = change.nonzero().squeeze(1)
        self.total = keys.shape[0]

    def lengths(self):
        ends = torch.empty_like(self.starts)
        ends[:-1] = self.starts[1:]
        ends[-1] = self.total
        return ends.sub_(self.starts)


class Deduplicator:
    def __init__(self, cfg: JobConfig, device):
        self.cfg = cfg
        self.sorted = torch.empty(cfg.fingerprints, dtype=torch.int64, device=device)
        self.order = torch.empty(cfg.fingerprints, dtype=torch.int64, device=device)
        self.keep = torch.empty(cfg.fingerprints, dtype=torch.bool, device=device)

    def run(self, keys) -> Tuple[torch.Tensor, Dict[str, torch.Tensor]]:
        torch.sort(keys, stable=True, out=(self.sorted, self.order))
        runs = RunLengths(self.sorted)
        survivors = self.order[runs.starts]
        self.keep.zero_()
        self.keep[survivors] = True
        heaviest, where = runs.lengths().max(dim=0)
        report = {"unique": runs.starts.shape[0], "heaviest": heaviest, "example": self.sorted.index_select(0, runs.starts.index_select(0, where.view(1)))}
        return self.keep, report


class Job:
    def __init__(self, cfg: JobConfig, device):
        self.shards, self.dedup = FingerprintShards(cfg, device), Deduplicator(cfg, device)
        self.unique, self.seen = 0, 0

    @torch.no_grad()
    def step(self):
        keys = self.shards.load()
        keep, report = self.dedup.run(keys)
        self.unique += report["unique"]
        self.seen += keep.shape[0]
        return report


def export_trace(job, device, path):
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds, record_shapes=True, with_stack=True, with_modules=True,
                                schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                on_trace_ready=lambda p: p.export_chrome_trace(path)) as prof:
        for _ in range(6):
            job.step()
            prof.step()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["healthy"], default="healthy")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--max-seconds", type=float, default=60.0)
    ap.add_argument("--trace")
    args = ap.parse_args()
    device = torch.device(args.device)
    cfg = JobConfig() if device.type == "cuda" else JobConfig(20_000, 12_000, 5_000)
    job = Job(cfg, device)
    for _ in range(3):
        job.step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    t0 = time.perf_counter()
    points = [t0]
    while len(points) <= args.steps and points[-1] - t0 < args.max_seconds:
        job.step()
        points.append(time.perf_counter())
    if device.type == "cuda":
        torch.cuda.synchronize()
    total, n = time.perf_counter() - t0, len(points) - 1
    deltas = [b - a for a, b in zip(points, points[1:])]
    print(json.dumps({"program": "v08", "variant": args.variant, "steps": n, "step_ms_mean": total / n * 1e3,
                      "step_ms_median": statistics.median(deltas) * 1e3}), flush=True)
    if args.trace:
        export_trace(job, device, args.trace)


if __name__ == "__main__":
    main()
