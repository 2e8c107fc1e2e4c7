"""Trains a wide stack with noisy inputs and a line of report text for every step.

TRUTH: healthy. Each step makes a little noise on the host (torch.randn, 64 KB, pageable copy to the device), formats twenty
strings and runs about a ms of plain Python, but only after the kernels are queued, so all of it hides under 20 ms of GEMMs
(variant "without" does none of it; the time hardly changes).
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import HostWork, Work, main


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
        net = Stack(dim, 4).to(ctx.device, ctx.half)
    opt = torch.optim.SGD(net.parameters(), lr=1e-4, fused=True)
    pool = torch.randn(2, n, dim, device=ctx.device, dtype=ctx.half)
    noise = torch.randn(1, dim, device=ctx.device, dtype=ctx.half)
    tally, lines = HostWork(1.0), []

    def train_step(i):
        shift = noise
        if ctx.variant == "healthy":
            shift = torch.randn(2, dim).to(ctx.device)[:1].to(ctx.half)
        net(torch.add(pool[i % 2], shift, alpha=0.1)).square().mean().backward()
        opt.step()
        opt.zero_grad()
        if ctx.variant == "healthy":
            lines.extend(f"step {i:06d} part {k:02d} rate {1e-4:.3e} share {k / 20:.4f}" for k in range(20))
            del lines[:-200]
            tally()

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, variants=("healthy", "without"), steps=(60, 6), warmup=5)
