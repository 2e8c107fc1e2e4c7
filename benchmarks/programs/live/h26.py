"""Cross-sectional factor back-test: rolling ranks and betas per instrument."""

import argparse
import time

import numpy as np


class Panel:
    """Prices by (day, instrument); `series(j)` gives one instrument's history."""

    def __init__(self, days, names, seed, variant):
        rng = np.random.default_rng(seed)
        r = rng.normal(scale=0.01, size=(days, names)).astype(np.float32)
        market = rng.normal(scale=0.008, size=days).astype(np.float32)
        self.market = market
        returns = r + market[:, None] * rng.random(names).astype(np.float32)
        self.data = returns if variant == "slow" else np.asfortranarray(returns)

    def series(self, j):
        return self.data[:, j]


def rolling_sum(x, window):
    c = np.cumsum(x, dtype=np.float64)
    out = c[window - 1 :].copy()
    out[1:] -= c[:-window]
    return out


class Factor:
    def __init__(self, panel, lo):
        self.panel, self.lo = panel, lo

    def beta(self, j):
        x = self.panel.series(j)
        return float(x @ self.panel.market) / float(self.panel.market @ self.panel.market)

    def extreme(self, j):
        x = self.panel.series(j)
        return float(x.max() - x.min())

    def momentum(self, j):
        return float(self.panel.series(j)[-self.lo :].sum())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=30)
    args = ap.parse_args()

    panel = Panel(3000, 4096, 8, args.variant)
    factor = Factor(panel, 250)
    cpu, wall, result, begin = [], [], 0.0, time.perf_counter()
    for step in range(args.steps):
        c, w = time.process_time(), time.perf_counter()
        names = range((step % 4) * 1024, (step % 4) * 1024 + 1024)
        score = [factor.beta(j) + factor.extreme(j) + factor.momentum(j) for j in names]
        result = float(np.mean(score))
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
