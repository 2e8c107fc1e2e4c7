"""Turns feature frames into sound, a short chunk at a time, with a convolutional vocoder.

TRUTH: the convolutions still carry the weight_norm parametrization of training; in inference every forward of every layer builds
the weight again (parametrize get_parametrized -> aten::_weight_norm_interface over g and v), for weights that never
change. Fix: remove_parametrizations(conv, "weight", leave_parametrized=True) once after loading (or parametrize.cached()).
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from common import Work, main


class Vocoder(nn.Module):
    def __init__(self, feats, chans, depth):
        super().__init__()
        self.into = nn.Conv1d(feats, chans, 1)
        self.convs = nn.ModuleList(weight_norm(nn.Conv1d(chans, chans, 3, padding=1)) for _ in range(depth))
        self.out = nn.Conv1d(chans, 64, 1)

    def forward(self, x):
        h = self.into(x)
        for conv in self.convs:
            h = conv(F.leaky_relu(h, 0.1))
        return torch.tanh(self.out(h))


def build(ctx):
    feats, chunks, t = ctx.pick(80, 8), ctx.pick(8, 2), ctx.pick(64, 8)
    net = Vocoder(feats, ctx.pick(512, 8), ctx.pick(24, 2)).to(ctx.device).eval()
    if not ctx.slow:
        for conv in net.convs:
            parametrize.remove_parametrizations(conv, "weight", leave_parametrized=True)
    frames = torch.randn(chunks, 1, feats, t, device=ctx.device)

    @torch.no_grad()
    def speak(i):
        return torch.cat([net(frames[k]) for k in range(chunks)], -1)

    return Work(speak, items=chunks)


if __name__ == "__main__":
    main(build, steps=(100, 6), warmup=6)
