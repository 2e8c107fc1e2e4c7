"""Trains a wide stack and keeps a copy of the last good weights to go back to.

TRUTH: every fourth step `keep()` copies the whole state dict to pageable host memory, `{k: v.cpu() for k, v in
net.state_dict().items()}` (400 MB, synchronous Memcpy DtoH into freshly allocated pages); the device idles meanwhile: a periodic
stall. Fix: keep the copy on the device (torch._foreach_copy_ into resident tensors), or pinned buffers with non_blocking=True.
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
            x = F.relu(layer(x), inplace=True)
        return x


def build(ctx):
    torch.set_float32_matmul_precision("high")
    dim, n = ctx.pick(4096, 32), ctx.pick(4096, 8)
    with torch.device(ctx.device):
        net = Stack(dim, 6).to(ctx.device)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-5, fused=True)
    pool = torch.randn(4, n, dim, device=ctx.device)
    good = {}
    held = [p.detach().clone() for p in net.parameters()]

    @torch.no_grad()
    def keep():
        if ctx.slow:
            good.update({k: v.cpu() for k, v in net.state_dict().items()})
        else:
            torch._foreach_copy_(held, list(net.parameters()))

    def train_step(i):
        net(pool[i % 4]).square().mean().backward()
        opt.step()
        opt.zero_grad()
        if i % 4 == 3:
            keep()

    return Work(train_step, items=n)


if __name__ == "__main__":
    main(build, steps=(80, 8), warmup=8)
