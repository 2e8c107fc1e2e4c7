"""Trains a wide feed-forward model with gradients summed over four calls.

TRUTH: healthy. Steps are of two kinds: three of four only add gradients, the fourth also runs the fused AdamW over 0.8 billion
parameters (a few ms of memory-bound work). The rhythm is gradient accumulation, not a stall; each part is bound by GEMMs or by
bandwidth.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main


class Block(nn.Module):
    def __init__(self, dim, inner):
        super().__init__()
        self.up, self.down = nn.Linear(dim, inner, bias=False), nn.Linear(inner, dim, bias=False)

    def forward(self, x):
        return self.down(F.relu(self.up(x), inplace=True))


def build(ctx):
    dim, inner, n = ctx.pick(4096, 32), ctx.pick(16384, 64), ctx.pick(4096, 8)
    with torch.device(ctx.device):
        net = nn.Sequential(*[Block(dim, inner) for _ in range(6)]).to(ctx.device, ctx.half)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True)
    pool = torch.randn(4, n, dim, device=ctx.device, dtype=ctx.half)

    def train_step(i):
        net(pool[i % 4]).mean().backward()
        if i % 4 == 3:
            opt.step()
            opt.zero_grad()

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, variants=("healthy",), steps=(40, 8), warmup=8)
