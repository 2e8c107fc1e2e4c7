"""Momentum-contrast pretraining on two ranks with a queue of negatives."""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

WRAP = {"slow": {"bucket_cap_mb": 25}, "fixed": {"bucket_cap_mb": 25, "broadcast_buffers": False}}


class Tower(nn.Module):
    def __init__(self, features, width, out):
        super().__init__()
        self.stem = nn.Linear(features, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(3))
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, out))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return F.normalize(self.head(x), dim=1)


class Contrast(nn.Module):
    def __init__(self, features=512, width=384, out=128, slots=131072, momentum=0.995, temperature=0.2):
        super().__init__()
        self.momentum, self.temperature = momentum, temperature
        self.query, self.key = Tower(features, width, out), Tower(features, width, out)
        self.key.load_state_dict(self.query.state_dict())
        self.key.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(slots, out), dim=1))
        self.register_buffer("head_at", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def follow(self):
        pairs = zip(self.key.parameters(), self.query.parameters())
        for slow, fast in pairs:
            slow.lerp_(fast, 1 - self.momentum)

    @torch.no_grad()
    def push(self, keys):
        world = dist.get_world_size()
        parts = [torch.empty_like(keys) for _ in range(world)]
        dist.all_gather(parts, keys.contiguous())
        at = int(self.head_at)
        everyone = torch.cat(parts)[: len(self.queue) - at]
        self.queue[at : at + len(everyone)] = everyone
        self.head_at[0] = (at + len(everyone)) % len(self.queue)

    def forward(self, left, right, negatives):
        q = self.query(left)
        with torch.no_grad():
            k = self.key(right)
            far = self.queue.index_select(0, negatives)
        positive = (q * k).sum(1, keepdim=True)
        logits = torch.cat([positive, q @ far.T], 1) / self.temperature
        return F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long)), k


class Views:
    def __init__(self, rank, batch, features, slots, picks):
        self.g = torch.Generator().manual_seed(100 + rank)
        self.batch, self.slots, self.picks = batch, slots, picks
        self.base = torch.randn(2048, features, generator=torch.Generator().manual_seed(5))

    def augment(self, x):
        keep = (torch.rand(x.shape, generator=self.g) > 0.2).float()
        return x * keep + 0.1 * torch.randn(x.shape, generator=self.g)

    def draw(self):
        rows = self.base[torch.randint(len(self.base), (self.batch,), generator=self.g)]
        negatives = torch.randint(self.slots, (self.picks,), generator=self.g)
        return self.augment(rows), self.augment(rows), negatives


def everyone_done(local):
    flag = torch.tensor([int(local)])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())


def run(args, rank):
    torch.manual_seed(0)
    model = Contrast(slots=args.slots)
    ddp = DistributedDataParallel(model, **WRAP[args.variant])
    opt = torch.optim.SGD(model.query.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    views = Views(rank, args.batch, 512, args.slots, args.negatives)
    times, total = [], 0.0
    dist.barrier()
    began = time.perf_counter()
    for _ in range(args.steps):
        t0 = time.perf_counter()
        loss, keys = ddp(*views.draw())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        model.follow()
        model.push(keys)
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
    ap.add_argument("--batch", type=int, default=48)
    ap.add_argument("--slots", type=int, default=131072)
    ap.add_argument("--negatives", type=int, default=1024)
    args = ap.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    times, loss = run(args, rank)
    if rank == 0:
        kept = times[2:] or times
        print(json.dumps({"case": "re01", "variant": args.variant, "steps": len(times), "loss": round(loss, 3),
                          "mean_step_ms": round(statistics.fmean(kept), 2),
                          "median_step_ms": round(statistics.median(kept), 2)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
