"""Image encoder under DDP with a per-sample loss ledger kept by the lead process."""
import argparse
import gc
import heapq
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

GPU = torch.cuda.is_available()
D, HEADS, DEPTH, PATCHES, BATCH, CLASSES = (1024, 16, 12, 256, 48, 1000) if GPU else (32, 2, 2, 16, 4, 10)
SAMPLES = 700_000 if GPU else 3000


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, D))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(3 * 64, D)
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.head = nn.Linear(D, CLASSES)

    def forward(self, x):
        x = self.patch(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


class Entry:
    __slots__ = ("key", "seen", "loss", "trail")

    def __init__(self, key):
        self.key, self.seen, self.loss, self.trail = key, 0, 0.0, [key % 97]


class Ledger:
    def __init__(self, n):
        self.rows = [Entry(k) for k in range(n)]

    def update(self, keys, losses, step):
        for k, v in zip(keys, losses):
            row = self.rows[k]
            row.seen += 1
            row.loss = v if row.seen == 1 else 0.7 * row.loss + 0.3 * v
            row.trail.append(step)
            if len(row.trail) > 4:
                del row.trail[0]

    def hardest(self, keys, n=5):
        return heapq.nlargest(n, keys, key=lambda k: self.rows[k].loss)


class Feed:
    def __init__(self, rank, world, dev):
        self.rank, self.world, self.dev = rank, world, dev
        self.g = torch.Generator(device=dev).manual_seed(900 + rank)
        self.share = SAMPLES // world

    def next(self):
        keys = torch.randint(self.share, (BATCH,), generator=self.g, device=self.dev)
        x = torch.randn(BATCH, PATCHES, 3 * 64, generator=self.g, device=self.dev)
        return keys * self.world + self.rank, x, keys % CLASSES


class Housekeeper:
    """Runs cyclic collection at fixed steps so that ranks do it together."""

    def __init__(self, every):
        self.every = every
        gc.disable()
        self.settle()

    def settle(self):
        gc.collect()
        gc.freeze()

    def tick(self, step):
        if step % self.every == self.every - 1:
            gc.collect()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=4000)
    ap.add_argument("--max-seconds", type=float, default=26.0)
    args = ap.parse_args()
    dev = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if GPU else torch.device("cpu")
    if GPU:
        torch.cuda.set_device(dev)
    dist.init_process_group("nccl" if GPU else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    with torch.device(dev):
        net = Encoder()
    ddp = DDP(net, device_ids=[dev.index] if GPU else None, gradient_as_bucket_view=True)
    opt = torch.optim.AdamW(ddp.parameters(), lr=1e-4, fused=GPU)
    feed = Feed(rank, world, dev)
    keeper = Housekeeper(4)
    ledger = Ledger(SAMPLES) if rank == 0 else None
    if args.variant == "fixed":
        keeper.settle()
    skip = 6 if args.steps > 20 else 1
    marks, begin, hard = [], time.perf_counter(), []
    got = torch.empty(world * BATCH, 2, device=dev, dtype=torch.float64)
    for step in range(args.steps):
        keys, x, y = feed.next()
        with torch.autocast(dev.type, dtype=torch.bfloat16):
            each = F.cross_entropy(ddp(x).float(), y, reduction="none")
        each.mean().backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        dist.all_gather_into_tensor(got, torch.stack([keys.double(), each.detach().double()], 1))
        rows = got.tolist()
        if ledger is not None:
            seen = [int(r[0]) for r in rows]
            ledger.update(seen, [r[1] for r in rows], step)
            if step % 50 == 0:
                hard = ledger.hardest(seen)
        keeper.tick(step)
        marks.append(time.perf_counter())
        if step % 4 == 3:
            flag = torch.tensor([int(marks[-1] - begin > args.max_seconds)], device=dev)
            dist.all_reduce(flag, op=dist.ReduceOp.MAX)
            if flag.item():
                break
    d = sorted(1e3 * (b - a) for a, b in zip(marks[skip - 1:], marks[skip:]))
    if rank == 0:
        print(json.dumps({"variant": args.variant, "steps": len(marks), "hard": hard[:3],
                          "mean_ms": round(sum(d) / len(d), 3), "median_ms": round(d[len(d) // 2], 3)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
