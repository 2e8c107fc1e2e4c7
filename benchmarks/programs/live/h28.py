"""Walk-forward covariance cleaning: eigenvalue clipping on a rolling window."""

import argparse
import time
from collections import deque

import numpy as np


class Window:
    def __init__(self, days, names):
        self.rows = deque(maxlen=days)
        self.names = names

    def push(self, block):
        for row in block:
            self.rows.append(row.copy())

    def covariance(self):
        x = np.array(list(self.rows))
        x = x - x.mean(0)
        return x.T @ x / (len(x) - 1)


def clean(cov, ratio):
    values, vectors = np.linalg.eigh(cov)
    edge = values.mean() * (1 + np.sqrt(ratio)) ** 2
    noise = values < edge
    values = np.where(noise, values[noise].mean(), values)
    return (vectors * values) @ vectors.T


def min_variance(cov):
    w = np.linalg.solve(cov, np.ones(len(cov)))
    return w / w.sum()


def returns(names, seed):
    rng = np.random.default_rng(seed)
    load = rng.normal(size=(names, 5))
    while True:
        yield rng.normal(size=(20, 5)) @ load.T + rng.normal(size=(20, names))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=30)
    args = ap.parse_args()

    names = 700
    win, stream = Window(900, names), returns(names, 12)
    for _ in range(45):
        win.push(next(stream))
    cpu, wall, result, begin = [], [], 0.0, time.perf_counter()
    for step in range(args.steps):
        c, w = time.process_time(), time.perf_counter()
        block = next(stream)
        win.push(block)
        w_opt = min_variance(clean(win.covariance(), names / 900))
        result = float((block @ w_opt).std())
        cpu.append(time.process_time() - c)
        wall.append(time.perf_counter() - w)
        if len(cpu) % 20 == 0:
            print(len(cpu), f"{result:.6g}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    med = sorted(cpu)[len(cpu) // 2] * 1e3
    print(
        f"done steps={len(cpu)} median_cpu_ms={med:.2f} median_wall_ms={sorted(wall)[len(wall) // 2] * 1e3:.2f} result={result:.6g}"
    )


if __name__ == "__main__":
    main()
