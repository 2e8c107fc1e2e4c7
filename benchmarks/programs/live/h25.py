"""Gradient-boosted regression stumps/trees written with numpy."""

import argparse
import time

import numpy as np


class Tree:
    """Depth-limited regression tree grown level by level on exact split points."""

    def __init__(self, X, order, depth):
        self.X, self.order, self.depth = X, order, depth

    def candidates(self, f, rows, member):
        if self.order is None:
            return rows[np.argsort(self.X[rows, f], kind="stable")]
        o = self.order[f]
        return o[member[o]]

    def best_split(self, rows, g):
        member = np.zeros(len(g), dtype=bool)
        member[rows] = True
        n, total = len(rows), g[rows].sum()
        best = (0.0, None, None)
        k = np.arange(1, n)
        for f in range(self.X.shape[1]):
            s = self.candidates(f, rows, member)
            left = np.cumsum(g[s])[:-1]
            gain = left**2 / k + (total - left) ** 2 / (n - k)
            i = int(gain.argmax())
            if gain[i] > best[0]:
                best = (gain[i], f, self.X[s[i], f])
        return best

    def fit(self, g):
        out = np.zeros(len(g))
        todo = [(np.arange(len(g)), 0)]
        while todo:
            rows, level = todo.pop()
            if level == self.depth or len(rows) < 50:
                out[rows] = g[rows].mean()
                continue
            _, f, cut = self.best_split(rows, g)
            go = self.X[rows, f] <= cut
            if go.all() or not go.any():
                out[rows] = g[rows].mean()
                continue
            todo += [(rows[go], level + 1), (rows[~go], level + 1)]
        return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=30)
    args = ap.parse_args()

    rng = np.random.default_rng(6)
    X = rng.normal(size=(20_000, 12))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=len(X))
    order = None if args.variant == "slow" else np.argsort(X, axis=0, kind="stable").T.copy()
    pred = np.zeros(len(y))
    cpu, wall, result, begin = [], [], 0.0, time.perf_counter()
    for step in range(args.steps):
        c, w = time.process_time(), time.perf_counter()
        pred += 0.1 * Tree(X, order, 3).fit(y - pred)
        result = float(((y - pred) ** 2).mean())
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
