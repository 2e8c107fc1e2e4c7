"""Trains a model that refines its estimate twelve times with the same weights, in mixed precision.

TRUTH: torch.autocast is entered anew in each of the twelve refinement rounds (`with torch.autocast(...)` inside the loop of
`refine`): leaving the context clears autocast's cache of cast weights, so all fp32 weights are cast to bf16 again in every round
(aten::to/_to_copy of 4096x4096 weights), and backward casts and adds a full fp32 gradient for every round. Fix: one autocast
context around the whole loop, so each weight is cast once a step.
"""
import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main


class Update(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(depth))

    def forward(self, h, c):
        y = h + c
        for layer in self.layers:
            y = F.relu(layer(y))
        return h + 0.1 * y


def build(ctx):
    dim, n, rounds = ctx.pick(4096, 32), ctx.pick(512, 8), ctx.pick(12, 3)
    with torch.device(ctx.device):
        net = Update(dim, 5).to(ctx.device)
    opt = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, fused=True)
    pool = torch.randn(4, n, dim, device=ctx.device, dtype=torch.bfloat16)
    goal = torch.randn(n, dim, device=ctx.device, dtype=torch.bfloat16)

    def mixed():
        return torch.autocast(ctx.device.type, dtype=torch.bfloat16)

    def refine(c):
        outer, inner = (contextlib.nullcontext, mixed) if ctx.slow else (mixed, contextlib.nullcontext)
        h = torch.zeros_like(c)
        with outer():
            for _ in range(rounds):
                with inner():
                    h = net(h, c)
        return h

    def train_step(i):
        (refine(pool[i % 4]) - goal).square().mean().backward()
        opt.step()
        opt.zero_grad()

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(80, 6), warmup=5)
