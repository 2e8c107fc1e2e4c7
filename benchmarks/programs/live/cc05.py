"""Hyperparameters of a Gaussian process fitted on random subsets of a growing sensor archive (JAX, float64)."""

import argparse
import json
import time

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

SIZES = (640, 704, 768)
DIM = 6


def archive(n, seed=2):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, DIM))
    y = np.sin(2 * x[:, 0]) + 0.5 * np.cos(3 * x[:, 1]) * x[:, 2] + 0.2 * x[:, 3] ** 2
    return x, y + 2e-3 * rng.standard_normal(n)


def start_params():
    return {
        "scale": jnp.zeros(DIM),
        "gain": jnp.zeros(()),
        "noise": jnp.full((), np.log(1e-2)),
        "mean": jnp.zeros(()),
    }


def covariance(p, a, b):
    a, b = a * jnp.exp(-p["scale"]), b * jnp.exp(-p["scale"])
    sq = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2.0 * a @ b.T
    return jnp.exp(2 * p["gain"]) * jnp.exp(-0.5 * jnp.maximum(sq, 0.0))


def evidence(p, x, y):
    n = x.shape[0]
    cov = covariance(p, x, x) + (jnp.exp(2 * p["noise"]) + 1e-8) * jnp.eye(n)
    low = jnp.linalg.cholesky(cov)
    half = jax.scipy.linalg.solve_triangular(low, y - p["mean"], lower=True)
    return (0.5 * half @ half + jnp.log(jnp.diag(low)).sum() + 0.5 * n * jnp.log(2 * jnp.pi)) / n


@jax.jit
def fit_step(p, m, v, count, x, y):
    value, g = jax.value_and_grad(evidence)(p, x, y)
    norm = jnp.sqrt(sum(jnp.sum(t**2) for t in jax.tree.leaves(g)))
    g = jax.tree.map(lambda t: t * jnp.minimum(1.0, 5.0 / (norm + 1e-12)), g)
    m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    v = jax.tree.map(lambda a, b: 0.99 * a + 0.01 * b * b, v, g)
    p = jax.tree.map(
        lambda t, a, b: (
            t - 0.02 * (a / (1 - 0.9**count)) / (jnp.sqrt(b / (1 - 0.99**count)) + 1e-9)
        ),
        p,
        m,
        v,
    )
    return p, m, v, value, norm


class Subsets:
    """Draws subsets whose size follows the sensors that reported; sizes are rounded to a few steps."""

    def __init__(self, x, y, seed=0):
        self.x, self.y, self.rng = x, y, np.random.default_rng(seed)

    def draw(self):
        size = int(self.rng.choice(SIZES))
        rows = self.rng.choice(len(self.x), size, replace=False)
        return self.x[rows], self.y[rows]


class History:
    def __init__(self):
        self.rows = []

    def add(self, step, value, norm, params):
        flat = {k: np.asarray(v).tolist() for k, v in params.items()}
        self.rows.append({"step": step, "value": value, "norm": norm, **flat})

    def settled(self, window=60, tol=1e-7):
        if len(self.rows) < 2 * window:
            return False
        values = [r["value"] for r in self.rows]
        return abs(np.mean(values[-window:]) - np.mean(values[-2 * window : -window])) < tol


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="healthy", choices=["slow", "fixed", "healthy"])
    ap.add_argument("--steps", type=int, default=260)
    ap.add_argument("--max-seconds", type=float, default=60)
    args = ap.parse_args()
    x, y = archive(20_000)
    subsets, history = Subsets(x, y), History()
    p = start_params()
    m, v = jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p)
    for size in SIZES:
        jax.block_until_ready(fit_step(p, m, v, 1.0, jnp.asarray(x[:size]), jnp.asarray(y[:size])))
    times, began = [], time.perf_counter()
    for step in range(args.steps):
        t0 = time.perf_counter()
        bx, by = subsets.draw()
        p, m, v, value, norm = fit_step(p, m, v, float(step + 1), jnp.asarray(bx), jnp.asarray(by))
        jax.block_until_ready(p)
        value, norm = float(value), float(norm)
        history.add(step, value, norm, jax.device_get(p))
        if not np.isfinite(value):
            raise FloatingPointError(f"step {step}: {value}")
        if step >= 2:
            times.append(1e3 * (time.perf_counter() - t0))
        if step % 50 == 0:
            print(
                f"step {step} n {len(bx)} evidence {value:.4f} noise {float(jnp.exp(p['noise'])):.2e}",
                flush=True,
            )
        if history.settled() or time.perf_counter() - began > args.max_seconds:
            break
    print(
        json.dumps(
            {
                "variant": args.variant,
                "steps": len(times),
                "evidence": round(history.rows[-1]["value"], 4),
                "mean_ms": round(float(np.mean(times)), 3),
                "median_ms": round(float(np.median(times)), 3),
            }
        )
    )


if __name__ == "__main__":
    main()
