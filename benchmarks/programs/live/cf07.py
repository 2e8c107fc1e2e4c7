"""Momentum-contrast pretraining on two ranks."""
import argparse
import copy
import json
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

ap = argparse.ArgumentParser()
ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
ap.add_argument("--steps", type=int, default=100000)
ap.add_argument("--max-seconds", type=float, default=28)
args = ap.parse_args()

DIM, KEYS, BATCH = 128, 32768, 24


def encoder():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, DIM),
    )


class Contrast(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = encoder()
        self.key = copy.deepcopy(self.query)
        self.key.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(KEYS, DIM), dim=1))
        self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def advance(self):
        for q, k in zip(self.query.parameters(), self.key.parameters()):
            k.lerp_(q, 0.01)

    @torch.no_grad()
    def enqueue(self, keys):
        parts = [torch.empty_like(keys) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, keys)
        keys, p = torch.cat(parts), int(self.ptr)
        self.queue[p : p + len(keys)] = keys
        self.ptr[0] = (p + len(keys)) % (KEYS - 2 * BATCH)

    def forward(self, a, b):
        q = F.normalize(self.query(a), dim=1)
        with torch.no_grad():
            self.advance()
            k = F.normalize(self.key(b), dim=1)
            sample = torch.randint(0, KEYS, (2048,))
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue[sample].T], 1) / 0.2
        loss = F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))
        self.enqueue(k)
        return loss


def views(g):
    base = torch.rand(BATCH, 3, 48, 48, generator=g)
    return base + 0.1 * torch.randn(base.shape, generator=g), base.flip(-1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = Contrast()
    if args.variant == "fixed":
        model = DDP(net, broadcast_buffers=False)
    else:
        model = DDP(net)
    opt = torch.optim.SGD(net.query.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    g = torch.Generator().manual_seed(rank)
    times, begin = [], time.perf_counter()
    for step in range(args.steps):
        if step % 10 == 0:
            over = torch.tensor([float(time.perf_counter() - begin > args.max_seconds)])
            dist.all_reduce(over, op=dist.ReduceOp.MAX)
            if over.item():
                break
        t0 = time.perf_counter()
        a, b = views(g)
        loss = model(a, b)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        times.append((time.perf_counter() - t0) * 1e3)
    if rank == 0:
        t = sorted(times[5:])
        print(json.dumps({"steps": len(times), "mean_ms": sum(t) / len(t), "median_ms": t[len(t) // 2]}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
