"""Demand forecast for shops; the error of every shop is followed while training."""
import argparse
import statistics
import time

import numpy as np
import pandas as pd
import torch
from torch import nn

SHOPS, WINDOW, FEATURES = 120, 28, 12
NAMES = np.array([f"shop-{number:03d}" for number in range(SHOPS)])


class History:
    """Errors by shop, over all steps so far, for the sampling weights and the dashboard."""

    def __init__(self):
        self.frame = pd.DataFrame({"step": pd.Series(dtype=int), "shop": pd.Series(dtype=str),
                                   "error": pd.Series(dtype=float)})

    def add(self, step, shops, errors):
        rows = pd.DataFrame({"step": step, "shop": NAMES[shops], "error": errors.astype(float)})
        self.frame = pd.concat([self.frame, rows], ignore_index=True)

    def by_shop(self):
        means = self.frame.groupby("shop")["error"].mean()
        return means.reindex(NAMES, fill_value=1.0).to_numpy()


class RunningHistory:
    def __init__(self):
        self.total, self.count = np.zeros(SHOPS), np.zeros(SHOPS)

    def add(self, step, shops, errors):
        self.total += np.bincount(shops, errors, SHOPS)
        self.count += np.bincount(shops, minlength=SHOPS)

    def by_shop(self):
        return np.where(self.count > 0, self.total / np.maximum(self.count, 1), 1.0)


class Forecaster(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.shop = nn.Embedding(SHOPS, width)
        self.net = nn.Sequential(nn.Linear(WINDOW * FEATURES, 256), nn.GELU(), nn.Linear(256, width))
        self.out = nn.Linear(width, 1)

    def forward(self, windows, shops):
        return self.out(self.net(windows.flatten(1)) * (1 + self.shop(shops))).squeeze(1)


class Sales:
    def __init__(self, days=1500, seed=4):
        self.rng = np.random.default_rng(seed)
        self.table = self.rng.standard_normal((SHOPS, days, FEATURES), dtype=np.float32)
        self.days = days

    def draw(self, weights, size):
        shops = self.rng.choice(SHOPS, size, p=weights / weights.sum())
        days = self.rng.integers(0, self.days - WINDOW - 1, size)
        windows = self.table[shops[:, None], days[:, None] + np.arange(WINDOW)]
        target = windows[:, -7:, 0].mean(1) + 0.1 * self.table[shops, days + WINDOW, 1]
        return shops, torch.from_numpy(windows), torch.from_numpy(target)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    parser.add_argument("--steps", type=int, default=240)
    args = parser.parse_args()
    torch.manual_seed(0)
    sales, model = Sales(), Forecaster()
    history = History() if args.variant == "slow" else RunningHistory()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    weights, times = np.ones(SHOPS), []
    for step in range(args.steps):
        begin = time.perf_counter()
        shops, windows, target = sales.draw(weights, 6144)
        errors = (model(windows, torch.from_numpy(shops)) - target).square()
        optimizer.zero_grad()
        errors.mean().backward()
        optimizer.step()
        history.add(step, shops, errors.detach().numpy())
        weights = history.by_shop()
        times.append((time.perf_counter() - begin) * 1e3)
        if step % 50 == 0:
            print(f"step {step} mse {errors.mean().item():.4f} worst shop {int(weights.argmax())}")
    times = times[5:]
    print(f"median_step_ms={statistics.median(times):.2f} mean_step_ms={statistics.fmean(times):.2f}")


if __name__ == "__main__":
    main()
