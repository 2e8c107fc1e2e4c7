"""Trains a plain stack of linear layers on large batches.

TRUTH: PYTORCH_NO_CUDA_MEMORY_CACHING=1 is left in the environment (a debugging switch), so every tensor is a cudaMalloc and every
release a cudaFree, which synchronises the device; the host spends the step in these runtime calls. Fix: unset the variable.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main


class Stack(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


def build(ctx):
    dim, n = ctx.pick(2048, 32), ctx.pick(16384, 8)
    net = Stack(dim, 8).to(ctx.device, ctx.half)
    opt = torch.optim.SGD(net.parameters(), lr=1e-3, fused=True)
    pool = torch.randn(4, n, dim, device=ctx.device, dtype=ctx.half)

    def train_step(i):
        net(pool[i % 4]).square().mean().backward()
        opt.step()
        opt.zero_grad()

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(80, 6), warmup=5, env={"slow": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}})
