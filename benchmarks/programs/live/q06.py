"""Song embeddings from listening histories; negatives are drawn without repetition from the catalogue."""

import argparse
import time

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=300)
args = parser.parse_args()

SONGS, FEATURES, BATCH, NEGATIVES = 600_000, 24, 128, 256


class Catalogue:
    def __init__(self, songs):
        rng = np.random.default_rng(1)
        self.table = pd.DataFrame(
            rng.standard_normal((songs, FEATURES)).astype(np.float32),
            columns=[f"f{i}" for i in range(FEATURES)],
        )
        self.values = self.table.to_numpy()
        self.rng = np.random.default_rng(2)

    def rows(self, ids):
        return torch.from_numpy(self.values[ids])

    def negatives(self, count):
        if args.variant == "fixed":
            return self.rng.choice(len(self.table), size=count, replace=False)
        return np.random.choice(len(self.table), size=count, replace=False)


class Histories:
    """Pairs of songs that were played one after the other."""

    def __init__(self, songs, plays=200_000):
        rng = np.random.default_rng(3)
        self.frame = pd.DataFrame(
            {"first": rng.integers(0, songs, plays), "second": rng.integers(0, songs, plays)}
        )
        self.rng = rng

    def sample(self, count):
        rows = self.frame.iloc[self.rng.integers(0, len(self.frame), count)]
        return rows["first"].to_numpy(), rows["second"].to_numpy()


class Tower(nn.Module):
    def __init__(self, width=384, out=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(FEATURES, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, out)
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    device = torch.device(args.device)
    catalogue, histories = Catalogue(SONGS), Histories(SONGS)
    tower = Tower().to(device)
    opt = torch.optim.AdamW(tower.parameters(), lr=1e-3)
    times = []
    for step in range(args.steps):
        start = time.perf_counter()
        first, second = histories.sample(BATCH)
        negative = catalogue.negatives(NEGATIVES)
        anchor = tower(catalogue.rows(first).to(device))
        others = tower(torch.cat([catalogue.rows(second), catalogue.rows(negative)]).to(device))
        scores = anchor @ others.T / 0.1
        loss = F.cross_entropy(scores, torch.arange(BATCH, device=device))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0:
            print(f"step {step} loss {loss.item():.3f}")
        times.append(time.perf_counter() - start)
    half = times[len(times) // 2 :]
    print(f"step_ms={1000 * sum(half) / len(half):.3f}")


main()
