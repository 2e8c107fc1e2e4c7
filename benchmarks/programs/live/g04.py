"""Bayesian MLP regression by stochastic gradient Langevin dynamics, in JAX."""
import argparse
import dataclasses
import functools
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What the chain needs to know for one move."""
    step_size: float
    prior_scale: float = 1.0
    rows: int = 40_000


def init(key, sizes):
    keys = jax.random.split(key, len(sizes))
    return [(jax.random.normal(k, (a, b)) / np.sqrt(a), jnp.zeros(b)) for k, a, b in zip(keys, sizes, sizes[1:])]


def predict(params, x):
    for weight, bias in params[:-1]:
        x = jnp.tanh(x @ weight + bias)
    weight, bias = params[-1]
    return (x @ weight + bias)[:, 0]


def potential(params, x, y, prior_scale, rows):
    z = predict(params, x)
    fit = jnp.mean((z - y) ** 2) * rows
    prior = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)) / (2 * prior_scale**2)
    return fit + prior


def langevin(params, noise, x, y, step_size, prior_scale, rows):
    energy, grads = jax.value_and_grad(potential)(params, x, y, prior_scale, rows)
    _, unflatten = ravel_pytree(params)
    noise = unflatten(noise)
    moved = jax.tree.map(lambda p, g, n: p - 0.5 * step_size * g + jnp.sqrt(step_size) * n, params, grads, noise)
    return moved, energy


@functools.partial(jax.jit, static_argnames="kernel")
def move(params, noise, x, y, kernel):
    return langevin(params, noise, x, y, kernel.step_size, kernel.prior_scale, kernel.rows)


@functools.partial(jax.jit, static_argnames="kernel")
def move_at(params, noise, x, y, step_size, kernel):
    return langevin(params, noise, x, y, step_size, kernel.prior_scale, kernel.rows)


def step_size_at(step, a=2e-6, b=20.0, gamma=0.55):
    return a * (b + step) ** -gamma


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    parser.add_argument("--steps", type=int, default=80)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40_000, 64), dtype=np.float32)
    y = (x[:, 0] * x[:, 1] > 0).astype(np.float32)
    params = init(jax.random.key(0), [64, 1024, 1])
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    fixed_kernel = Kernel(step_size=0.0)
    times, energies = [], []
    for step in range(args.steps):
        begin = time.perf_counter()
        noise = rng.standard_normal(count, dtype=np.float32)
        rows = rng.integers(0, len(x), 2048)
        size = step_size_at(step)
        if args.variant == "slow":
            params, energy = move(params, noise, x[rows], y[rows], Kernel(size))
        else:
            params, energy = move_at(params, noise, x[rows], y[rows], size, fixed_kernel)
        energies.append(float(energy))
        times.append((time.perf_counter() - begin) * 1e3)
        if step % 20 == 0:
            print(f"move {step} potential {energies[-1]:.1f}")
    times = times[5:]
    print(f"median_step_ms={statistics.median(times):.2f} mean_step_ms={statistics.fmean(times):.2f}")


if __name__ == "__main__":
    main()
