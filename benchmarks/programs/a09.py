"""Trains a wide residual stack in bf16 and prints the loss now and then.

TRUTH: healthy. Large bf16 GEMMs (8192 x 8192 x 8192) fill the device, fused AdamW, one `.item()` every 50 steps (variant
"without" has none; the time hardly changes). Nothing worth 15 % to fix.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main


class Stack(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x), inplace=True)
        return x


def build(ctx):
    dim, n = ctx.pick(8192, 32), ctx.pick(8192, 8)
    with torch.device(ctx.device):
        net = Stack(dim, 5).to(ctx.device, ctx.half)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True)
    pool = torch.randn(2, n, dim, device=ctx.device, dtype=ctx.half)
    seen = []

    def train_step(i):
        loss = net(pool[i % 2]).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        if ctx.variant == "healthy" and i % 50 == 0:
            seen.append(loss.item())

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, variants=("healthy", "without"), steps=(60, 6), warmup=5)
