"""Exact de-duplication of 64-bit shingle hashes, shard by shard, with the heavy hitters of each shard."""
import argparse
import json
import os
import statistics
import time

import torch


def parse_args(variants, default_steps, cpu_steps=4):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=None)
    ap.add_argument("--max-seconds", type=float, default=1e9)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    if args.steps is None:
        args.steps = default_steps if args.device == "cuda" else cpu_steps
    return args


def run_loop(args, step, warmup):
    cuda = args.device == "cuda"
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    count = 0
    for _ in range(warmup):
        step(count)
        count += 1
    sync()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step(count)
        count += 1
        marks.append(time.perf_counter())
        if marks[-1] - marks[0] > args.max_seconds:
            break
    sync()
    total = time.perf_counter() - marks[0]
    laps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": os.path.splitext(os.path.basename(__file__))[0],
        "variant": args.variant,
        "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 4),
        "step_ms_median": round(1e3 * statistics.median(laps), 4),
    }), flush=True)
    if args.trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        acts = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if cuda else [])
        with profile(activities=acts, record_shapes=True, with_stack=True, with_modules=True,
                     schedule=schedule(wait=0, warmup=2, active=4, repeat=1),
                     on_trace_ready=lambda p: p.export_chrome_trace(args.trace)) as prof:
            for _ in range(6):
                step(count)
                count += 1
                prof.step()
        sync()


class Deduplicator:
    def __init__(self, device):
        self.shard, distinct, shards = (128_000_000, 100_000_000, 4) if device == "cuda" else (20_000, 15_000, 2)
        self.shards = []
        torch.manual_seed(11)
        for _ in range(shards):
            pool = torch.randint(-(1 << 63), (1 << 63) - 1, (distinct,), dtype=torch.int64, device=device)
            ids = torch.randint(0, distinct, (self.shard,), device=device)
            ids[: self.shard // 50] %= 997
            self.shards.append(pool[ids])
        self.seen = 0
        self.distinct = 0
        self.heavy = {}

    def step(self, i):
        which = i % len(self.shards)
        hashes, counts = torch.unique(self.shards[which], return_counts=True)
        top = torch.nonzero(counts > self.shard // 100_000).flatten()
        self.heavy[which] = (hashes[top].tolist(), counts[top].tolist())
        self.seen += self.shard
        self.distinct += hashes.numel()


def main():
    args = parse_args(["healthy"], 330)
    run_loop(args, Deduplicator(args.device).step, warmup=4)


if __name__ == "__main__":
    main()
