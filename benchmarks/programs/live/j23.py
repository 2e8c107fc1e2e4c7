"""Training on voxelised point clouds: points in one cell are averaged into one."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--max-seconds", type=float, default=15)
args = parser.parse_args()

POINTS, GRID, WIDTH = 60_000, 32, 16


class Voxels:
    """Cells in use, and for each point the number of its cell."""

    def group(self, points):
        cell = ((points + 1) * 0.5 * GRID).long().clamp(0, GRID - 1)
        cells, owner = torch.unique(cell, dim=0, return_inverse=True)
        return cells, owner

    def centres(self, points):
        cells, owner = self.group(points)
        sums = torch.zeros(len(cells), 3).index_add_(0, owner, points)
        count = torch.bincount(owner, minlength=len(cells))
        return sums / count[:, None], count


class CodedVoxels(Voxels):
    def group(self, points):
        cell = ((points + 1) * 0.5 * GRID).long().clamp(0, GRID - 1)
        code = (cell[:, 0] * GRID + cell[:, 1]) * GRID + cell[:, 2]
        used = torch.bincount(code, minlength=GRID**3) > 0
        rank = used.cumsum(0) - 1
        kept = used.nonzero().squeeze(1)
        cells = torch.stack([kept // GRID**2, kept // GRID % GRID, kept % GRID], 1)
        return cells, rank[code]


class CloudNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.each = nn.Sequential(nn.Linear(4, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, centres, count):
        x = torch.cat([centres, count[:, None].float().log()], 1)
        return self.head(self.each(x).amax(0))


def scan():
    """Points on a bent shell; its stretch and tilt are what the network must tell."""
    target = torch.rand(2)
    points = F.normalize(torch.randn(POINTS, 3), dim=1) * 0.6
    points = points + 0.01 * torch.randn(POINTS, 3)
    points[:, 0] *= 0.8 + 0.5 * target[0]
    points[:, 1] += 0.3 * target[1] * points[:, 2]
    return points, target


def main():
    torch.manual_seed(0)
    voxels = Voxels() if args.variant == "slow" else CodedVoxels()
    model = CloudNet().to(args.device)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        points, target = scan()
        centres, count = voxels.centres(points)
        guess = model(centres.to(args.device), count.to(args.device))
        loss = F.mse_loss(guess, target.to(args.device))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 10 == 0:
            print(f"step {step} cells {len(centres)} loss {loss.item():.4f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    took = time.perf_counter() - begin
    print(f"done steps={step} ms_per_step={1e3 * took / step:.2f} loss={loss.item():.5f}")


main()
