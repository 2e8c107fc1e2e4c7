"""Trains a regressor on sensor readings through a DataLoader in the main process.

TRUTH: the dataset returns each reading as a Python list of 2048 floats (`.tolist()` in Readings.__getitem__); default_collate
transposes such lists and makes one float64 tensor for every position (2048 torch.tensor calls over 64 Python floats a batch),
and the step stacks them again; the host is busy in DataLoader.__next__/default_collate while the device waits. Fix: return an
array or tensor, which is stacked once.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

from common import Work, cycle, main


class Readings(Dataset):
    def __init__(self, rows, width, listed):
        self.data = np.random.default_rng(1).random((rows, width), dtype=np.float32)
        self.listed = listed

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        row = self.data[i]
        return (row.tolist() if self.listed else row), float(row[0])


def build(ctx):
    torch.set_float32_matmul_precision("high")
    width, n, wide = ctx.pick(2048, 32), ctx.pick(64, 4), ctx.pick(8192, 32)
    with torch.device(ctx.device):
        net = nn.Sequential(nn.Linear(width, wide), nn.ReLU(), *[m for _ in range(3) for m in (nn.Linear(wide, wide), nn.ReLU())], nn.Linear(wide, 1)).to(ctx.device)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True)
    batches = cycle(DataLoader(Readings(ctx.pick(4096, 64), width, ctx.slow), batch_size=n, shuffle=True, drop_last=True))

    def train_step(i):
        x, y = next(batches)
        if isinstance(x, (list, tuple)):
            x = torch.stack(list(x), 1).float()
        x, y = x.to(ctx.device), y.float().to(ctx.device)
        F.mse_loss(net(x)[:, 0], y).backward()
        opt.step()
        opt.zero_grad()

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(60, 8), warmup=6)
