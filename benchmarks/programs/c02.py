"""Fault detection on vibration records, streamed from compressed shards."""
import zlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from blocks_c import Block
from common import Work, cycle, main


class Stream(IterableDataset):
    def __init__(self, records, length, early):
        self.records, self.length, self.early = records, length, early

    def decode(self, blob):
        x = np.frombuffer(zlib.decompress(blob), np.int16).astype(np.float32)
        x = (x - x.mean()) / (x.std() + 1e-5)
        return torch.from_numpy(x.reshape(-1, 1024)[: self.length])

    def __iter__(self):
        info = get_worker_info()
        me, n = (info.id, info.num_workers) if info else (0, 1)
        for i in range(1_000_000):
            blob = self.records[i % len(self.records)]
            if self.early:
                if i % n == me:
                    yield self.decode(blob), i & 7
            else:
                sample = self.decode(blob), i & 7
                if i % n == me:
                    yield sample


class Detector(nn.Module):
    def __init__(self, d, heads, layers):
        super().__init__()
        self.inp = nn.Linear(1024, d)
        self.blocks = nn.ModuleList(Block(d, heads, causal=False) for _ in range(layers))
        self.out = nn.Linear(d, 8)

    def forward(self, x):
        x = self.inp(x)
        for b in self.blocks:
            x = b(x)
        return self.out(x.mean(1))


def build(ctx):
    rng = np.random.default_rng(0)
    rows, n = ctx.pick(48, 8), ctx.pick(64, 4)
    walks = np.cumsum(rng.integers(-9, 10, (ctx.pick(128, 8), rows * 1024)), 1).astype(np.int16)
    records = [zlib.compress(w.tobytes(), 1) for w in walks]
    net = Detector(ctx.pick(2048, 32), ctx.pick(16, 2), ctx.pick(4, 1)).to(ctx.device, ctx.half)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    loader = DataLoader(Stream(records, rows, early=not ctx.slow), batch_size=n, num_workers=ctx.workers(8),
                        pin_memory=ctx.cuda, prefetch_factor=4)
    batches = cycle(loader)

    def train_step(i):
        x, y = next(batches)
        x, y = x.to(ctx.device, non_blocking=True), y.to(ctx.device, non_blocking=True)
        F.cross_entropy(net(x.to(ctx.half)), y).backward()
        opt.step()
        opt.zero_grad()

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(200, 6))
