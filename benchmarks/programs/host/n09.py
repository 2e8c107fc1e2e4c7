"""Prices are computed row by row of a data frame."""

import argparse
import time

import numpy as np
import pandas as pd


def totals(frame):
    out = []
    for _, row in frame.iterrows():
        out.append(row["price"] * row["count"] * (0.9 if row["count"] > 5 else 1.0))
    return sum(out)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=float, default=12)
    end = time.monotonic() + args.parse_args().seconds
    random, total = np.random.default_rng(0), 0.0
    while time.monotonic() < end:
        frame = pd.DataFrame({"price": random.random(5000), "count": random.integers(1, 9, 5000)})
        total += totals(frame)
    print(total)


if __name__ == "__main__":
    main()
