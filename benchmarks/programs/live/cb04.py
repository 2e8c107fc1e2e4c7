"""Demand forecasting from sensor tables: pandas features, minibatches by NumPy, a small regressor."""
import argparse
import json
import statistics
import time

import numpy as np
import pandas as pd
import torch
from torch import nn

CHANNELS = 24
LAGS = (1, 2, 3, 6, 12, 24, 48)
WINDOWS = (4, 12, 24)


def load_readings(rows: int, seed: int = 11) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    index = pd.date_range("2024-01-01", periods=rows, freq="15min")
    phase = rng.uniform(0, 2 * np.pi, CHANNELS)
    ticks = np.arange(rows)[:, None]
    values = np.sin(2 * np.pi * ticks / 96 + phase) + 0.3 * rng.normal(size=(rows, CHANNELS))
    frame = pd.DataFrame(values.astype(np.float32), index=index, columns=[f"s{n:02d}" for n in range(CHANNELS)])
    frame.iloc[rng.integers(0, rows, rows // 500), 3] = np.nan
    return frame.ffill().bfill()


def lagged(frame: pd.DataFrame) -> list[pd.DataFrame]:
    return [frame.shift(lag).add_suffix(f"_lag{lag}") for lag in LAGS]


def smoothed(frame: pd.DataFrame) -> list[pd.DataFrame]:
    parts = []
    total = frame.cumsum()
    for window in WINDOWS:
        mean = (total - total.shift(window)) / window
        parts.append(mean.add_suffix(f"_mean{window}"))
        parts.append((frame - mean).add_suffix(f"_dev{window}"))
    return parts


def calendar(index: pd.DatetimeIndex) -> pd.DataFrame:
    day = 2 * np.pi * (index.hour + index.minute / 60) / 24
    week = 2 * np.pi * index.day_of_week / 7
    columns = {"day_sin": np.sin(day), "day_cos": np.cos(day), "week_sin": np.sin(week), "week_cos": np.cos(week)}
    return pd.DataFrame(columns, index=index).astype(np.float32)


def build_features(readings: pd.DataFrame) -> pd.DataFrame:
    parts = [readings, *lagged(readings), *smoothed(readings), calendar(readings.index)]
    table = pd.concat(parts, axis=1).iloc[max(LAGS):-1]
    return ((table - table.mean()) / (table.std() + 1e-6)).astype(np.float32)


def build_target(readings: pd.DataFrame) -> pd.Series:
    ahead = readings.mean(axis=1).shift(-1)
    return ahead.iloc[max(LAGS):-1].astype(np.float32)


class Matrix:
    """The table as arrays, split by time into a part to train on and one to validate on."""

    def __init__(self, table: pd.DataFrame, target: pd.Series, variant: str, held_out: float = 0.1):
        values = table.to_numpy(dtype=np.float32)
        if variant == "fixed":
            values = np.ascontiguousarray(values)
        cut = int(len(values) * (1 - held_out))
        wanted = target.to_numpy(dtype=np.float32)
        self.train, self.valid = (values[:cut], wanted[:cut]), (values[cut:], wanted[cut:])

    def minibatches(self, size: int, seed: int):
        values, wanted = self.train
        rng = np.random.default_rng(seed)
        while True:
            order = rng.permutation(len(values))
            for start in range(0, len(order) - size + 1, size):
                rows = order[start : start + size]
                yield values[rows], wanted[rows]


class Regressor(nn.Module):
    def __init__(self, features: int, hidden: int = 64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, hidden), nn.SiLU(), nn.Dropout(0.1),
                                 nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1))

    def forward(self, inputs):
        return self.net(inputs).squeeze(-1)


@torch.no_grad()
def validate(model, matrix: Matrix, rows: int = 4096) -> float:
    model.eval()
    values, wanted = matrix.valid
    guess = model(torch.from_numpy(np.array(values[:rows])))
    model.train()
    return float((guess - torch.from_numpy(np.array(wanted[:rows]))).abs().mean())


def fit(args):
    readings = load_readings(args.rows)
    table = build_features(readings)
    matrix = Matrix(table, build_target(readings), args.variant)
    print(f"{table.shape[0]} rows, {table.shape[1]} features", flush=True)
    model = Regressor(table.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_of = nn.HuberLoss()
    times = []
    begin = last = time.perf_counter()
    for step, (inputs, wanted) in enumerate(matrix.minibatches(args.batch, seed=1)):
        inputs = np.clip(inputs, -6, 6)
        guess = model(torch.from_numpy(inputs))
        loss = loss_of(guess, torch.from_numpy(wanted))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            print(f"step {step} loss {loss.item():.4f} valid {validate(model, matrix):.4f}", flush=True)
        now = time.perf_counter()
        times.append(1e3 * (now - last))
        last = now
        if step + 1 >= args.steps or now - begin > args.max_seconds:
            break
    return times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--max-seconds", type=float, default=22)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--batch", type=int, default=1024)
    args = parser.parse_args()
    torch.manual_seed(0)
    times = fit(args)[5:]
    print(json.dumps({"case": "cb04", "variant": args.variant, "steps": len(times),
                      "mean_ms": statistics.fmean(times), "median_ms": statistics.median(times)}))


if __name__ == "__main__":
    main()
