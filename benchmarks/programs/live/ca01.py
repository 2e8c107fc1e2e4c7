"""Sequence classification on long synthetic sensor streams with gated long convolutions."""

import argparse
import json
import math
import statistics
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    seq_len: int = 2048
    kernel_len: int = 1024
    width: int = 64
    depth: int = 2
    classes: int = 12
    batch: int = 8
    lr: float = 2e-3
    round_up: bool = False


class SensorStream:
    """Endless batches: sums of a few chirps whose parameters depend on the class."""

    def __init__(self, cfg: Config, seed: int = 0):
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(seed)
        t = torch.linspace(0, 1, cfg.seq_len)
        base = []
        for c in range(cfg.classes):
            f0, f1 = 3 + 2 * c, 40 + 5 * c
            base.append(torch.sin(2 * math.pi * (f0 * t + 0.5 * (f1 - f0) * t * t)))
        self.base = torch.stack(base)

    def __iter__(self):
        return self

    def __next__(self):
        y = torch.randint(0, self.cfg.classes, (self.cfg.batch,), generator=self.gen)
        x = self.base[y] + 0.3 * torch.randn(self.cfg.batch, self.cfg.seq_len, generator=self.gen)
        return x.unsqueeze(-1), y


class ImplicitKernel(nn.Module):
    """A small network of time that produces one filter per channel, with a learned decay."""

    def __init__(self, width: int, length: int, hidden: int = 32, freqs: int = 8):
        super().__init__()
        t = torch.linspace(0, 1, length).unsqueeze(-1)
        k = torch.arange(1, freqs + 1).float()
        feats = torch.cat([t, torch.sin(math.pi * k * t), torch.cos(math.pi * k * t)], dim=-1)
        self.register_buffer("t", t)
        self.register_buffer("feats", feats)
        self.net = nn.Sequential(nn.Linear(2 * freqs + 1, hidden), nn.SiLU(), nn.Linear(hidden, width))
        self.decay = nn.Parameter(torch.linspace(0.5, 6.0, width))

    def forward(self):
        h = self.net(self.feats) * torch.exp(-self.t * F.softplus(self.decay))
        return (h / h.abs().sum(0, keepdim=True)).transpose(0, 1)


def causal_conv(u, k, round_up: bool):
    """u: (B, D, L), k: (D, K); returns the first L samples of the linear convolution."""
    length = u.shape[-1]
    n = length + k.shape[-1] - 1
    if round_up:
        n += -n % 256
    spec = torch.fft.rfft(u, n=n) * torch.fft.rfft(k, n=n)
    return torch.fft.irfft(spec, n=n)[..., :length]


class LongConvBlock(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.norm = nn.LayerNorm(cfg.width)
        self.inp = nn.Linear(cfg.width, 2 * cfg.width)
        self.kernel = ImplicitKernel(cfg.width, cfg.kernel_len)
        self.skip = nn.Parameter(torch.ones(cfg.width, 1))
        self.out = nn.Linear(cfg.width, cfg.width)
        self.round_up = cfg.round_up

    def forward(self, x):
        u, gate = self.inp(self.norm(x)).chunk(2, dim=-1)
        u = u.transpose(1, 2)
        y = causal_conv(u, self.kernel(), self.round_up) + self.skip * u
        return x + self.out(y.transpose(1, 2) * torch.sigmoid(gate))


class Classifier(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.embed = nn.Linear(1, cfg.width)
        self.blocks = nn.ModuleList(LongConvBlock(cfg) for _ in range(cfg.depth))
        self.norm = nn.LayerNorm(cfg.width)
        self.head = nn.Linear(cfg.width, cfg.classes)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


def train(cfg: Config, steps: int, max_seconds: float):
    torch.manual_seed(0)
    model = Classifier(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, cfg.lr, total_steps=max(steps, 2) + 1)
    data = SensorStream(cfg)
    times, begin, ema = [], time.perf_counter(), None
    for step in range(steps):
        t0 = time.perf_counter()
        x, y = next(data)
        loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            ema = loss.item() if ema is None else 0.7 * ema + 0.3 * loss.item()
        times.append(1e3 * (time.perf_counter() - t0))
        if time.perf_counter() - begin > max_seconds:
            break
    return times, ema


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--max-seconds", type=float, default=60)
    args = ap.parse_args()
    cfg = Config(round_up=args.variant != "slow")
    times, loss = train(cfg, args.steps, args.max_seconds)
    kept = times[3:] or times
    print(json.dumps({"steps": len(times), "mean_step_ms": round(statistics.fmean(kept), 3),
                      "median_step_ms": round(statistics.median(kept), 3), "loss": round(loss, 4)}))


if __name__ == "__main__":
    main()
