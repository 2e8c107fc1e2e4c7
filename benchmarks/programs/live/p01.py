"""Self-supervised pre-training of a small encoder on satellite tiles with a queue of negatives."""

import argparse
import copy
import time

import torch
import torch.nn.functional as F
from torch import nn


class TileEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(4, 24, 3, stride=2, padding=1),
            nn.GroupNorm(4, 24),
            nn.SiLU(),
            nn.Conv2d(24, 48, 3, stride=2, padding=1),
            nn.GroupNorm(4, 48),
            nn.SiLU(),
        )
        self.head = nn.Sequential(nn.Linear(48, 96), nn.SiLU(), nn.Linear(96, dim))

    def forward(self, tiles):
        return self.head(self.stem(tiles).mean(dim=(2, 3)))


class NegativeQueue:
    """The last `size` keys, oldest overwritten first."""

    def __init__(self, size, dim, unit_rows, device):
        self.rows = torch.randn(size, dim, device=device)
        self.unit_rows = unit_rows
        if unit_rows:
            self.rows = F.normalize(self.rows, dim=1)
        self.head = 0

    def push(self, keys):
        n = keys.shape[0]
        self.rows[self.head : self.head + n] = keys
        self.head = (self.head + n) % self.rows.shape[0]

    def similarity(self, query):
        bank = self.rows if self.unit_rows else F.normalize(self.rows, dim=1)
        return query @ bank.T


@torch.no_grad()
def follow(teacher, student, momentum):
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.mul_(momentum).add_(s, alpha=1 - momentum)


def augment(tiles, generator):
    shift = int(torch.randint(0, 4, (1,), generator=generator))
    view = torch.roll(tiles, shift, dims=3)
    gain = 0.8 + 0.4 * torch.rand(tiles.shape[0], 4, 1, 1, generator=generator)
    return view * gain


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--steps", type=int, default=400)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(1)

    dim, size, batch, temperature = 128, 65536, 8, 0.2
    student = TileEncoder(dim).to(args.device)
    teacher = copy.deepcopy(student).requires_grad_(False)
    queue = NegativeQueue(size, dim, args.variant == "fixed", args.device)
    opt = torch.optim.SGD(student.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
    tiles = torch.randn(512, 4, 32, 32, generator=gen)

    times = []
    for step in range(args.steps):
        start = time.perf_counter()
        pick = torch.randint(0, len(tiles), (batch,), generator=gen)
        images = tiles[pick].to(args.device)
        q = F.normalize(student(augment(images, gen)), dim=1)
        with torch.no_grad():
            k = F.normalize(teacher(augment(images, gen)), dim=1)
        positive = (q * k).sum(dim=1, keepdim=True)
        logits = torch.cat([positive, queue.similarity(q)], dim=1) / temperature
        loss = F.cross_entropy(logits, torch.zeros(batch, dtype=torch.long, device=args.device))
        opt.zero_grad()
        loss.backward()
        opt.step()
        follow(teacher, student, 0.99)
        queue.push(k)
        times.append(time.perf_counter() - start)
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)

    half = times[len(times) // 2 :]
    print(f"step_ms={1000 * sum(half) / len(half):.3f}")


if __name__ == "__main__":
    main()
