"""Density estimation with a normalising flow of orthogonal maps and couplings (CPU)."""

import argparse
import math
import time

import torch
import torch.nn as nn


class Reflections(nn.Module):
    """Learned orthogonal map: a product of Householder reflections."""

    def __init__(self, dim, count):
        super().__init__()
        self.vectors = nn.Parameter(torch.randn(count, dim))

    def forward(self, x):
        unit = torch.nn.functional.normalize(self.vectors, dim=1)
        eye = torch.eye(x.shape[1])
        for v in unit:
            x = x @ (eye - 2 * torch.outer(v, v))
        return x


class DirectReflections(Reflections):
    def forward(self, x):
        unit = torch.nn.functional.normalize(self.vectors, dim=1)
        for v in unit:
            x = x - torch.outer(2 * (x @ v), v)
        return x


class Coupling(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim // 2, hidden), nn.ReLU(), nn.Linear(hidden, dim))

    def forward(self, x):
        kept, moved = x.chunk(2, 1)
        shift, scale = self.net(kept).chunk(2, 1)
        scale = torch.tanh(scale)
        return torch.cat([kept, moved * scale.exp() + shift], 1), scale.sum(1)


class Flow(nn.Module):
    def __init__(self, dim, layers, count, kind):
        super().__init__()
        self.dim = dim
        self.maps = nn.ModuleList([kind(dim, count) for _ in range(layers)])
        self.couplings = nn.ModuleList([Coupling(dim, 96) for _ in range(layers)])

    def log_density(self, x):
        volume = torch.zeros(len(x))
        for turn, couple in zip(self.maps, self.couplings):
            x, change = couple(turn(x))
            volume = volume + change
        return volume - 0.5 * (x.square().sum(1) + self.dim * math.log(2 * math.pi))


def spectra(rows, dim, seed):
    """Correlated measurement vectors with a few latent factors."""
    gen = torch.Generator().manual_seed(seed)
    mix = torch.randn(12, dim, generator=gen)
    while True:
        z = torch.randn(rows, 12, generator=gen)
        yield torch.tanh(z @ mix / 3) + 0.2 * torch.randn(rows, dim, generator=gen)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--device", default="cpu")
    p.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--max-seconds", type=float, default=15)
    a = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # several jobs share this machine
    kind = Reflections if a.variant == "slow" else DirectReflections
    flow = Flow(dim=384, layers=3, count=8, kind=kind)
    opt = torch.optim.Adam(flow.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for step, x in enumerate(spectra(128, 384, 2), 1):
        loss = -flow.log_density(x).mean() / 384
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step} nats per dim {loss.item():.4f}", flush=True)
        if step >= a.steps or time.perf_counter() - begin > a.max_seconds:
            break
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={loss.item():.5f}")


if __name__ == "__main__":
    main()
