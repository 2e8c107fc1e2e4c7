"""Trains a convolutional stack on images that loader workers make.

TRUTH: healthy. Every batch costs several ms of numpy in a worker, but six workers with pinned memory keep ahead of the device
(variant "without" takes the batches from the device; the time hardly changes). The step is bound by large channels-last bf16
convolutions.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

from common import Work, cycle, main


class Images(Dataset):
    def __init__(self, n, side):
        self.n, self.side = n, side
        self.curve = (255 * (np.arange(256) / 255.0) ** 0.8).astype(np.uint8)

    def __len__(self):
        return 1_000_000

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        x = rng.integers(0, 256, (self.n, self.side, self.side, 3), dtype=np.uint8)
        x = self.curve[x][:, :, ::-1]
        return torch.from_numpy(np.ascontiguousarray(x)), torch.from_numpy(rng.integers(0, 10, self.n))


def build(ctx):
    n, side, chans = ctx.pick(128, 4), ctx.pick(56, 8), ctx.pick(256, 8)
    layers = [nn.Conv2d(3, chans, 3, padding=1, bias=False), nn.ReLU(inplace=True)]
    for _ in range(6):
        layers += [nn.Conv2d(chans, chans, 3, padding=1, bias=False), nn.ReLU(inplace=True)]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(chans, 10))
    net = net.to(ctx.device, ctx.half).to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, fused=True)
    data, fixed = Images(n, side), None
    if ctx.variant == "healthy":
        loader = DataLoader(data, batch_size=None, num_workers=6, prefetch_factor=4, pin_memory=ctx.cuda, persistent_workers=True)
        batches = cycle(loader)
    else:
        fixed = [tuple(v.to(ctx.device) for v in data[k]) for k in range(4)]

    def train_step(i):
        x, y = fixed[i % 4] if fixed else next(batches)
        x, y = x.to(ctx.device, non_blocking=True), y.to(ctx.device, non_blocking=True)
        x = x.permute(0, 3, 1, 2).to(ctx.half).div_(255)
        F.cross_entropy(net(x).float(), y).backward()
        opt.step()
        opt.zero_grad()

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, variants=("healthy", "without"), steps=(80, 8), warmup=16)
