"""Demand features from raw sales events (pandas), and an incremental ridge forecast on top."""
import argparse
import json
import statistics
import time

import numpy as np
import pandas as pd


class EventSource:
    """Delivers the sales events of one hour after another."""

    def __init__(self, stores, skus, rows, seed=0):
        self.rng = np.random.default_rng(seed)
        self.store_names = pd.Index([f"S{i:04d}" for i in range(stores)])
        self.sku_names = pd.Index([f"K{i:05d}" for i in range(skus)])
        self.weight = self.rng.dirichlet(np.full(skus, 0.3))
        self.rows = rows
        self.hour = pd.Timestamp("2024-01-01")

    def read(self):
        n, rng = self.rows, self.rng
        offsets = np.sort(rng.integers(0, 3600, n))
        frame = pd.DataFrame({
            "ts": self.hour + pd.to_timedelta(offsets, unit="s"),
            "store": pd.Categorical.from_codes(rng.integers(0, len(self.store_names), n), self.store_names),
            "sku": pd.Categorical.from_codes(rng.choice(len(self.sku_names), n, p=self.weight), self.sku_names),
            "qty": rng.poisson(2.0, n) + 1,
            "price": rng.gamma(3.0, 4.0, n).round(2),
            "promo": rng.random(n) < 0.15,
        })
        frame.loc[rng.integers(0, n, n // 200), "price"] = np.nan
        self.hour += pd.Timedelta(hours=1)
        return frame


def clean(frame, caps):
    frame = frame[frame["qty"].between(1, 12)].copy()
    frame["price"] = frame["price"].fillna(frame["price"].median())
    frame["price"] = frame["price"].clip(upper=caps["price"])
    frame["revenue"] = frame["qty"] * frame["price"]
    frame["minute"] = frame["ts"].dt.minute
    return frame


def pair_features(frame, args):
    grouped = frame.groupby(["store", "sku"], observed=args.variant != "slow", sort=False)
    table = grouped.agg(qty=("qty", "sum"), revenue=("revenue", "sum"), promo=("promo", "mean"), n=("qty", "size"))
    table = table[table["n"] > 0]
    table["unit"] = table["revenue"] / table["qty"]
    return table.reset_index()


def store_features(frame):
    busy = frame.groupby(["store", "minute"], observed=True)["qty"].sum().unstack(fill_value=0)
    return pd.DataFrame({"store_peak": busy.max(axis=1), "store_mean": busy.mean(axis=1)})


class History:
    """Exponentially weighted demand per SKU."""

    def __init__(self, sku_names, halflife=12):
        self.level = pd.Series(0.0, index=sku_names)
        self.decay = 0.5 ** (1 / halflife)

    def update(self, table):
        now = table.groupby("sku", observed=True)["qty"].sum()
        self.level *= self.decay
        self.level.loc[now.index] += (1 - self.decay) * now.to_numpy()
        return self.level


class Ridge:
    def __init__(self, width, lam=1.0):
        self.a, self.b = np.eye(width) * lam, np.zeros(width)

    def partial_fit(self, x, y):
        self.a += x.T @ x
        self.b += x.T @ y
        self.w = np.linalg.solve(self.a, self.b)
        return float(np.mean((x @ self.w - y) ** 2))


def design(table, store, level):
    t = table.join(store, on="store")
    t["level"] = t["sku"].map(level).astype(float)
    cols = [np.log1p(t["unit"]), t["promo"], np.log1p(t["store_peak"]), t["store_mean"], np.log1p(t["level"])]
    base = np.column_stack([np.asarray(c, float) for c in cols])
    cross = base[:, :, None] * base[:, None, :]
    x = np.hstack([np.ones((len(t), 1)), base, cross.reshape(len(t), -1)])
    return x, np.log1p(t["qty"].to_numpy(float))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="slow", choices=["slow", "fixed", "healthy"])
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--max-seconds", type=float, default=120)
    p.add_argument("--stores", type=int, default=1200)
    p.add_argument("--skus", type=int, default=2000)
    p.add_argument("--rows", type=int, default=30000)
    args = p.parse_args()

    source = EventSource(args.stores, args.skus, args.rows)
    history, model = History(source.sku_names), Ridge(31)
    times, errors = [], []
    begin = time.perf_counter()
    for step in range(args.steps):
        t0 = time.perf_counter()
        frame = clean(source.read(), {"price": 60.0})
        table = pair_features(frame, args)
        store = store_features(frame)
        level = history.update(table)
        x, y = design(table, store, level)
        errors.append(model.partial_fit(x, y))
        now = time.perf_counter()
        times.append((now - t0) * 1e3)
        if now - begin > args.max_seconds:
            break
    t = times[3:] or times
    print(json.dumps({"steps": len(times), "mean_ms": round(statistics.fmean(t), 3),
                      "median_ms": round(statistics.median(t), 3), "mse": round(errors[-1], 5)}))


if __name__ == "__main__":
    main()
