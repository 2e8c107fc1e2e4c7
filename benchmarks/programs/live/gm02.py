"""Population sampler for a Bayesian logistic regression: Langevin moves with occasional Hamiltonian trajectories."""
import argparse
import json
import os
import statistics
import time
from functools import partial
from typing import NamedTuple

import numpy as np

PROGRAM = "gm02"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 900
WARMUP = 3


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


ARGS = parse_args()

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.3")

import jax

jax.config.update("jax_platforms", ARGS.device)
import jax.numpy as jnp
from jax import lax, random


class Walker(NamedTuple):
    x: jax.Array
    key: jax.Array
    accepted: jax.Array
    clock: jax.Array


class Settings(NamedTuple):
    move_size: float = 0.004
    leap_size: float = 0.010
    leaps: int = 5
    period: int = 4
    inner: int = 16


def make_data(rows, width, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((rows, width)).astype(np.float32) / np.sqrt(width)
    truth = rng.standard_normal(width).astype(np.float32)
    labels = (rng.random(rows) < 1 / (1 + np.exp(-features @ truth))).astype(np.float32)
    return jnp.asarray(features), jnp.asarray(labels)


def make_target(features, labels):
    def log_density(x):
        logits = features @ x
        fit = jnp.sum(labels * logits - jax.nn.softplus(logits))
        return fit - 0.5 * jnp.sum(x * x)
    return log_density


def langevin(target, settings, x, key):
    """One Metropolis-adjusted Langevin proposal."""
    noise_key, accept_key = random.split(key)
    value_and_grad = jax.value_and_grad(target)
    here, slope = value_and_grad(x)
    eps = settings.move_size
    proposal = x + eps * slope + jnp.sqrt(2 * eps) * random.normal(noise_key, x.shape)
    there, slope_back = value_and_grad(proposal)
    forward = -jnp.sum((proposal - x - eps * slope) ** 2) / (4 * eps)
    backward = -jnp.sum((x - proposal - eps * slope_back) ** 2) / (4 * eps)
    take = jnp.log(random.uniform(accept_key)) < there - here + backward - forward
    return jnp.where(take, proposal, x), take


def hamiltonian(target, settings, x, key):
    """A short leapfrog trajectory with a Metropolis test."""
    momentum_key, accept_key = random.split(key)
    gradient = jax.grad(target)
    p0 = random.normal(momentum_key, x.shape)
    eps = settings.leap_size

    def leap(carry, _):
        q, p = carry
        q = q + eps * p
        p = p + eps * gradient(q)
        return (q, p), None

    p = p0 + 0.5 * eps * gradient(x)
    (q, p), _ = lax.scan(leap, (x, p), None, length=settings.leaps)
    p = p - 0.5 * eps * gradient(q)
    change = target(q) - target(x) - 0.5 * (jnp.sum(p * p) - jnp.sum(p0 * p0))
    take = jnp.log(random.uniform(accept_key)) < change
    return jnp.where(take, q, x), take


def advance(target, settings, walker):
    """One transition of one walker."""
    key, move_key, jump_key = random.split(walker.key, 3)
    x, taken = langevin(target, settings, walker.x, move_key)
    due = walker.clock % settings.period == settings.period - 1
    x, jumped = lax.cond(due,
                         lambda y: hamiltonian(target, settings, y, jump_key),
                         lambda y: (y, jnp.zeros((), bool)),
                         x)
    return Walker(x, key, walker.accepted + taken + jumped, walker.clock + 1)


def build_sampler(target, settings, variant):
    clock_axis = None if variant == "fixed" else 0
    axes = Walker(0, 0, 0, clock_axis)
    population = jax.vmap(partial(advance, target, settings), in_axes=(axes,), out_axes=axes)

    @jax.jit
    def sweep(walkers):
        def body(state, _):
            state = population(state)
            return state, jnp.mean(state.x, axis=0)
        walkers, means = lax.scan(body, walkers, None, length=settings.inner)
        return walkers, jnp.mean(means, axis=0)

    return sweep


def start_population(count, width, variant):
    keys = random.split(random.PRNGKey(7), count)
    x = 0.1 * random.normal(random.PRNGKey(3), (count, width))
    clock = jnp.zeros((), jnp.int32) if variant == "fixed" else jnp.zeros((count,), jnp.int32)
    return Walker(x, keys, jnp.zeros((count,), jnp.int32), clock)


class Chain:
    def __init__(self, sweep, walkers, width):
        self.sweep, self.walkers = sweep, walkers
        self.mean = jnp.zeros((width,))
        self.sweeps = 0

    def step(self):
        self.walkers, mean = self.sweep(self.walkers)
        self.sweeps += 1
        self.mean = self.mean + (mean - self.mean) / self.sweeps
        if self.sweeps % 8 == 0:
            self.mean.block_until_ready()
        if self.sweeps % 200 == 0:
            print(f"sweep {self.sweeps} |mean| {float(jnp.linalg.norm(self.mean)):.4f}", flush=True)


def main():
    args = ARGS
    small = args.device == "cpu"
    count, rows, width = (16, 128, 8) if small else (4096, 8192, 64)
    settings = Settings()
    features, labels = make_data(rows, width)
    target = make_target(features, labels)
    chain = Chain(build_sampler(target, settings, args.variant), start_population(count, width, args.variant), width)
    for _ in range(WARMUP):
        chain.step()
    jax.block_until_ready(chain.walkers)
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        chain.step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    jax.block_until_ready(chain.walkers)
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        with jax.profiler.trace(args.trace):
            for _ in range(4):
                chain.step()
            jax.block_until_ready(chain.walkers)


if __name__ == "__main__":
    main()
