"""Trains on spectrogram patches kept in array files, read by loader workers.

TRUTH: Patches.__getitem__ opens the whole 25 MB shard for every sample (`np.load(path)` without mmap_mode, then one row is
used), so each worker reads and allocates 256 times what it needs and the main loop waits in DataLoader.__next__. Fix:
np.load(path, mmap_mode="r") (or keep the opened shards).
"""
import atexit
import os
import shutil
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

from common import Work, cycle, main


class Patches(Dataset):
    def __init__(self, paths, rows, mode):
        self.paths, self.rows, self.mode = paths, rows, mode

    def __len__(self):
        return 200_000

    def __getitem__(self, i):
        k = (i * 7919) % (len(self.paths) * self.rows)
        data = np.load(self.paths[k // self.rows], mmap_mode=self.mode)
        return torch.from_numpy(np.array(data[k % self.rows])), k % 10


def build(ctx):
    rows, dim, n = ctx.pick(256, 8), ctx.pick(24576, 64), ctx.pick(16, 4)
    folder = tempfile.mkdtemp(prefix="patches")
    atexit.register(shutil.rmtree, folder, True)
    rng = np.random.default_rng(5)
    paths = []
    for k in range(ctx.pick(6, 2)):
        paths.append(os.path.join(folder, f"{k}.npy"))
        np.save(paths[-1], rng.random((rows, dim), dtype=np.float32))
    wide = ctx.pick(4096, 32)
    with torch.device(ctx.device):
        net = nn.Sequential(nn.Linear(dim, wide), nn.ReLU(), *[m for _ in range(14) for m in (nn.Linear(wide, wide), nn.ReLU())], nn.Linear(wide, 10)).to(ctx.device)
    opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, fused=True)
    loader = DataLoader(Patches(paths, rows, None if ctx.slow else "r"), batch_size=n, num_workers=4, pin_memory=ctx.cuda, persistent_workers=True, prefetch_factor=4)
    batches = cycle(loader)

    def train_step(i):
        x, y = next(batches)
        x, y = x.to(ctx.device, non_blocking=True), y.to(ctx.device, non_blocking=True)
        F.cross_entropy(net(x), y).backward()
        opt.step()
        opt.zero_grad()

    return Work(train_step, items=n, close=lambda: shutil.rmtree(folder, True))


if __name__ == "__main__":
    main(build, steps=(120, 10), warmup=20)
