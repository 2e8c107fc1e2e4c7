"""Trains a causal running-average mixer on long time series.

TRUTH: torch.cumsum over the outermost dimension of a time-major tensor [T, B, C] (Mixer.forward, `torch.cumsum(h, 0)`) with
only a few hundred columns: the scan kernel for an outer dimension uses one thread a column that walks all 8192 time steps, so the
device is almost empty; its backward is the same scan (flip, cumsum, flip). Kernel: tensor_kernel_scan_outer_dim. Fix: scan
over the last, contiguous dimension (h.permute(1, 2, 0).contiguous().cumsum(-1) and back), or keep the tensor time-last.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

from common import Work, main


class Mixer(nn.Module):
    def __init__(self, width, chans, inner):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.into, self.out = nn.Linear(width, chans), nn.Linear(chans, width)
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.inner_first = False

    def forward(self, x, scale):
        h = self.into(self.norm(x))
        if self.inner_first:
            s = torch.cumsum(h, 0)
        else:
            s = h.permute(1, 2, 0).contiguous().cumsum(-1).permute(2, 0, 1).contiguous()
        x = x + self.out(s * scale)
        return x + self.fc2(F.gelu(self.fc1(x)))


class Series(nn.Module):
    def __init__(self, feats, width, chans, inner, depth):
        super().__init__()
        self.embed = nn.Linear(feats, width)
        self.mix = nn.ModuleList(Mixer(width, chans, inner) for _ in range(depth))
        self.head = nn.Linear(width, feats)

    def forward(self, x):
        scale = 1.0 / torch.arange(1, x.shape[0] + 1, device=x.device, dtype=x.dtype).view(-1, 1, 1)
        h = self.embed(x)
        for m in self.mix:
            h = m(h, scale)
        return self.head(h)


def build(ctx):
    torch.set_float32_matmul_precision("high")
    t, b, feats = ctx.pick(8192, 64), ctx.pick(4, 2), 32
    net = Series(feats, ctx.pick(512, 16), ctx.pick(64, 8), ctx.pick(2048, 32), 3).to(ctx.device)
    for m in net.mix:
        m.inner_first = ctx.slow
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    pool = torch.randn(4, t + 1, b, feats, device=ctx.device)

    def train_step(i):
        x = pool[i % 4]
        F.smooth_l1_loss(net(x[:-1]), x[1:]).backward()
        opt.step()
        opt.zero_grad()

    return Work(train_step, items=t * b)


if __name__ == "__main__":
    main(build, steps=(60, 6), warmup=5)
