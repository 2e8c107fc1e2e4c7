"""Small shared pieces: command line, step timing, common layers."""
import argparse
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def base_parser(variants=("slow", "fixed"), **defaults):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=list(variants), default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=160)
    p.add_argument("--tiny", action="store_true")
    p.set_defaults(**defaults)
    return p


def sync(device):
    if str(device).startswith("cuda"):
        torch.cuda.synchronize()


class StepTimes:
    """Wall-clock stamps between steps; the device is waited for only at both ends."""

    def __init__(self, device, wait=None):
        self.device, self.stamps, self.total = device, [], None
        self.wait = wait or (lambda: sync(device))

    def begin(self):
        self.wait()
        self.stamps = [time.perf_counter()]

    def tick(self):
        self.stamps.append(time.perf_counter())

    def finish(self):
        self.wait()
        self.total = time.perf_counter() - self.stamps[0]
        d = [1e3 * (b - a) for a, b in zip(self.stamps, self.stamps[1:])]
        n = max(len(d), 1)
        d = sorted(d) or [0.0]
        p90 = d[min(len(d) - 1, int(0.9 * len(d)))]
        print("median_step_ms=%.3f mean_step_ms=%.3f p90=%.3f"
              % (statistics.median(d), 1e3 * self.total / n, p90), flush=True)


class MLP(nn.Module):
    def __init__(self, dims, act=nn.ReLU):
        super().__init__()
        layers = []
        for i, (a, b) in enumerate(zip(dims, dims[1:])):
            layers.append(nn.Linear(a, b))
            if i < len(dims) - 2:
                layers.append(act())
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return self.net(x)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, groups=8, temb=0):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(groups, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.n2, self.c2 = nn.GroupNorm(groups, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()
        self.t = nn.Linear(temb, cout) if temb else None

    def forward(self, x, temb=None):
        h = self.c1(F.silu(self.n1(x)))
        if self.t is not None:
            h = h + self.t(temb)[:, :, None, None]
        return self.skip(x) + self.c2(F.silu(self.n2(h)))


class EncoderLayer(nn.Module):
    """Pre-norm transformer layer on scaled_dot_product_attention."""

    def __init__(self, dim, heads, mult=4, causal=False):
        super().__init__()
        self.h, self.causal = heads, causal
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, mult * dim), nn.Linear(mult * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))
