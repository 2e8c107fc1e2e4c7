"""Gray-Scott reaction-diffusion on a large periodic grid."""
import sys

import torch

from blocks_f import Meter, parse, torch_sync

FEED, KILL, DU, DV = 0.037, 0.06, 0.16, 0.08


def laplacian(a):
    return (torch.roll(a, 1, 0) + torch.roll(a, -1, 0)
            + torch.roll(a, 1, 1) + torch.roll(a, -1, 1) - 4.0 * a)


def advance(u, v, dt):
    r = u * v * v
    du = DU * laplacian(u) - r + FEED * (1.0 - u)
    dv = DV * laplacian(v) + r - (FEED + KILL) * v
    return u + dt * du, v + dt * dv


class Simulation:
    def __init__(self, n, inner, device):
        self.n, self.inner, self.device = n, inner, device
        g = torch.Generator(device=device).manual_seed(7)
        self.u = torch.ones(n, n, device=device)
        self.v = torch.rand(n, n, generator=g, device=device) * 0.05
        c = n // 2
        w = max(2, n // 20)
        self.u[c - w:c + w, c - w:c + w] = 0.5
        self.v[c - w:c + w, c - w:c + w] = 0.25
        backend = "inductor" if device.type == "cuda" else "eager"
        self.advance = torch.compile(advance, backend=backend)
        self.history = []

    def schedule(self, i):
        return 0.8 + 0.2 * (i % 10) / 10

    @torch.no_grad()
    def run(self, i):
        dt = torch.tensor(self.schedule(i), device=self.device)
        for _ in range(self.inner):
            self.u, self.v = self.advance(self.u, self.v, dt)

    @torch.no_grad()
    def record(self, i):
        m = self.v[:: max(1, self.n // 256), :: max(1, self.n // 256)]
        self.history.append((i, m.mean().item(), m.max().item()))


def main():
    args = parse(["healthy"], every=10)
    device = torch.device(args.device)
    n, inner = (32, 2) if args.tiny else (8192, 64)
    sim = Simulation(n, inner, device)
    for i in range(2):
        sim.run(i)
    meter = Meter(torch_sync(device), budget_s=7.0)
    for i in meter.loop(args.steps):
        sim.run(i)
        if i % args.every == 0:
            sim.record(i)
            sys.stdout.write(f"{i:5d} mean {sim.history[-1][1]:.5f}\n")
            sys.stdout.flush()
    meter.report()


if __name__ == "__main__":
    main()
