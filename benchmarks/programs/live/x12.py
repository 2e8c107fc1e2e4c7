"""Acoustic encoder trained on two ranks with length-bucketed utterances (torchrun --nproc-per-node 2 x12.py)."""
import argparse
import json
import os
import random
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel


def split_range(batches, rank, world):
    per = len(batches) // world
    return batches[rank * per:(rank + 1) * per]


def split_stride(batches, rank, world):
    per = len(batches) // world
    return batches[rank:per * world:world]


class BucketSampler:
    """Utterances of similar length share a batch, so that little is padded; every rank walks its own shard."""

    def __init__(self, lengths, batch, rank, world, split, seed=0):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        batches = [order[i:i + batch] for i in range(0, len(order) - batch + 1, batch)]
        self.shard = split(batches, rank, world)
        self.seed, self.epoch = seed, 0

    def __iter__(self):
        while True:
            walk = list(self.shard)
            random.Random(self.seed + self.epoch).shuffle(walk)
            self.epoch += 1
            yield from walk


class Utterances:
    def __init__(self, count, shortest, longest, mels, device, seed=1):
        rng = random.Random(seed)
        self.lengths = [rng.randint(shortest, longest) // 8 * 8 for _ in range(count)]
        self.bank = torch.randn(longest * 4, mels, device=device)
        self.device, self.longest = device, longest

    def collate(self, ids):
        frames = max(self.lengths[i] for i in ids)
        starts = torch.tensor([(i * 37) % (3 * self.longest) for i in ids]).to(self.device, non_blocking=True)
        lens = torch.tensor([self.lengths[i] for i in ids]).to(self.device, non_blocking=True)
        x = self.bank[starts[:, None] + torch.arange(frames, device=self.device)]
        return x, lens


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.SiLU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))
        return x + self.ff(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self, mels, dim, heads, depth, units):
        super().__init__()
        self.front = nn.Conv1d(mels, dim, 5, stride=2, padding=2)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, units)

    def forward(self, x):
        x = F.gelu(self.front(x.transpose(1, 2))).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def trace_path(path, rank):
    return path if rank == 0 else path.replace(".json.gz", f".rank{rank}.json.gz")


def run_steps(name, args, step, device, rank, warmup=8):
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    for i in range(warmup):
        step(i)
    sync()
    laps = []
    begin = last = time.perf_counter()
    for i in range(args.steps):
        step(warmup + i)
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and len(laps) % 10 == 0:
            stop = torch.tensor([float(now - begin > args.max_seconds)], device=device)
            dist.broadcast(stop, 0)
            if stop.item():
                break
    sync()
    mean = (time.perf_counter() - begin) / len(laps)
    if rank == 0:
        print(json.dumps({"program": name, "variant": args.variant, "steps": len(laps),
                          "step_ms_mean": round(mean * 1e3, 3),
                          "step_ms_median": round(statistics.median(laps) * 1e3, 3)}), flush=True)
    if args.trace:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True, with_modules=True,
                                    schedule=torch.profiler.schedule(wait=0, warmup=2, active=4),
                                    on_trace_ready=lambda p: p.export_chrome_trace(trace_path(args.trace, rank))) as prof:
            for i in range(6):
                step(warmup + len(laps) + i)
                prof.step()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--max-seconds", type=float, default=0.0)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    big = args.device == "cuda"
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if big:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    count, shortest, longest, batch, dim, heads, depth, units = \
        (9216, 120, 2000, 96, 768, 12, 12, 2048) if big else (64, 16, 96, 4, 32, 2, 2, 16)
    torch.manual_seed(0)
    data = Utterances(count, shortest, longest, 80, device)
    split = {"slow": split_range, "fixed": split_stride}[args.variant]
    batches = iter(BucketSampler(data.lengths, batch, rank, world, split))
    model = DistributedDataParallel(Encoder(80, dim, heads, depth, units).to(device), device_ids=[device.index] if big else None,
                                    gradient_as_bucket_view=True)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=big)

    def step(i):
        x, lens = data.collate(next(batches))
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logits = model(x)
        frames = logits.shape[1]
        valid = torch.arange(frames, device=device)[None] < (lens // 2)[:, None]
        labels = torch.randint(units, valid.shape, device=device).masked_fill_(~valid, -100)
        loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=-100)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()

    run_steps("x12", args, step, device, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
