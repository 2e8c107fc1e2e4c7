"""Dynamic pricing: features of the last rides with pandas, a network learns from them online."""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn


class RideLog:
    def __init__(self, zones, seed):
        self.rng = np.random.default_rng(seed)
        self.zones = zones
        self.recent = self.draw(400)

    def draw(self, n):
        return pd.DataFrame(
            {
                "zone": self.rng.integers(0, self.zones, n),
                "km": self.rng.gamma(2.0, 3.0, n),
                "wait": self.rng.exponential(4.0, n),
                "price": self.rng.gamma(3.0, 5.0, n),
            }
        )

    def advance(self):
        self.recent = pd.concat([self.recent.iloc[40:], self.draw(40)], ignore_index=True)
        return self.recent


def by_zone(rides, zones):
    table = rides.groupby("zone")[["km", "wait", "price"]].mean().reindex(range(zones)).fillna(0.0)
    return table.to_numpy(dtype=np.float32)


class PriceNet(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(inputs, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["healthy"], default="healthy")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--steps", type=int, default=150)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    zones, batch = 24, 768
    log = RideLog(zones, seed=9)
    model = PriceNet(3 + 4, 640).to(args.device)
    opt = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    history, times = [], []
    for step in range(args.steps):
        start = time.perf_counter()
        rides = log.advance()
        table = by_zone(rides, zones)
        pick = log.rng.integers(0, len(rides), batch)
        rows = rides.to_numpy(dtype=np.float32)[pick]
        x = np.concatenate([table[rows[:, 0].astype(int)], rows], axis=1)
        x = torch.from_numpy(x).to(args.device)
        loss = nn.functional.huber_loss(model(x[:, :]), x[:, -1])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        history.append(loss.item())
        times.append(time.perf_counter() - start)
        if step % 20 == 0:
            print(f"step {step} loss {np.mean(history[-20:]):.4f}", flush=True)

    half = times[len(times) // 2 :]
    print(f"step_ms={1000 * sum(half) / len(half):.3f}")


if __name__ == "__main__":
    main()
