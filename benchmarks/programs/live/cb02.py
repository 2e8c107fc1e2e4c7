"""Surrogate for a reaction network: concentrations over (time, temperature), with a kinetics residual, in JAX."""
import argparse
import json
import statistics
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

SPECIES = 24
INPUTS = 2


class AdamState(NamedTuple):
    count: jax.Array
    first: list
    second: list


class Reactions(NamedTuple):
    stoichiometry: jax.Array  # reactions x species
    log_rate: jax.Array
    activation: jax.Array
    order: jax.Array


def make_reactions(seed: int, count: int = 40) -> Reactions:
    rng = np.random.default_rng(seed)
    change = np.zeros((count, SPECIES), np.float32)
    order = np.zeros((count, SPECIES), np.float32)
    for row in range(count):
        source, target = rng.choice(SPECIES, size=2, replace=False)
        change[row, source], change[row, target] = -1, 1
        order[row, source] = 1
    return Reactions(jnp.asarray(change), jnp.asarray(rng.normal(-1, 0.5, count), jnp.float32),
                     jnp.asarray(rng.uniform(0.5, 2, count), jnp.float32), jnp.asarray(order))


def kinetics(reactions: Reactions, state, temperature):
    rate = jnp.exp(reactions.log_rate - reactions.activation / (0.5 + temperature))
    amount = jnp.prod(jnp.where(reactions.order > 0, jnp.clip(state, 1e-6, None)[None], 1.0), axis=1)
    return (rate * amount) @ reactions.stoichiometry


def init_network(key, width: int, depth: int):
    sizes = [INPUTS] + [width] * depth + [SPECIES]
    layers = []
    for fan_in, fan_out in zip(sizes, sizes[1:]):
        key, sub = jax.random.split(key)
        scale = jnp.sqrt(2.0 / (fan_in + fan_out))
        layers.append({"w": scale * jax.random.normal(sub, (fan_in, fan_out)), "b": jnp.zeros(fan_out)})
    return layers


def network(layers, point):
    hidden = point
    for layer in layers[:-1]:
        hidden = jnp.tanh(hidden @ layer["w"] + layer["b"])
    last = layers[-1]
    return jax.nn.softplus(hidden @ last["w"] + last["b"])


def sensitivities(variant):
    return jax.jacfwd if variant == "fixed" else jax.jacrev


def residual(layers, reactions, variant, point):
    field = partial(network, layers)
    state = field(point)
    slopes = sensitivities(variant)(field)(point)
    balance = slopes[:, 0] - kinetics(reactions, state, point[1])
    smooth = slopes[:, 1]
    return jnp.mean(balance**2) + 1e-3 * jnp.mean(smooth**2)


def objective(layers, reactions, variant, points, measured_at, measured):
    physics = jax.vmap(partial(residual, layers, reactions, variant))(points).mean()
    fit = jnp.mean((network(layers, measured_at) - measured) ** 2)
    return fit + 0.1 * physics, (fit, physics)


def adam(grads, state: AdamState, layers, rate=1e-3, b1=0.9, b2=0.999):
    count = state.count + 1
    first = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.first, grads)
    second = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.second, grads)
    step = rate * jnp.sqrt(1 - b2**count) / (1 - b1**count)
    layers = jax.tree.map(lambda p, m, v: p - step * m / (jnp.sqrt(v) + 1e-8), layers, first, second)
    return layers, AdamState(count, first, second)


@partial(jax.jit, static_argnames="variant", donate_argnums=(0, 1))
def train_step(layers, state, reactions, points, measured_at, measured, variant):
    grad = jax.value_and_grad(objective, has_aux=True)
    (loss, parts), grads = grad(layers, reactions, variant, points, measured_at, measured)
    layers, state = adam(grads, state, layers)
    return layers, state, loss, parts


class Experiment:
    """Noisy measurements at random times and temperatures; a fresh draw for each step."""

    def __init__(self, seed: int, rows: int):
        self.rng = np.random.default_rng(seed)
        self.at = self.rng.uniform(0, 1, (rows, INPUTS)).astype(np.float32)
        decay = self.rng.uniform(0.2, 3, SPECIES).astype(np.float32)
        clean = np.exp(-decay * self.at[:, :1] * (0.5 + self.at[:, 1:]))
        self.values = clean + 0.01 * self.rng.normal(size=clean.shape).astype(np.float32)

    def draw(self, count: int):
        rows = self.rng.integers(0, len(self.at), count)
        return self.at[rows], self.values[rows].astype(np.float32)

    def collocation(self, count: int):
        return self.rng.uniform(0, 1, (count, INPUTS)).astype(np.float32)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--max-seconds", type=float, default=25)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--points", type=int, default=192)
    parser.add_argument("--measured", type=int, default=1024)
    args = parser.parse_args()

    reactions = make_reactions(3)
    experiment = Experiment(5, 50_000)
    layers = init_network(jax.random.key(0), args.width, args.depth)
    zeros = jax.tree.map(jnp.zeros_like, layers)
    state = AdamState(jnp.zeros((), jnp.float32), zeros, jax.tree.map(jnp.zeros_like, layers))

    times = []
    begin = last = time.perf_counter()
    for step in range(args.steps):
        measured_at, measured = experiment.draw(args.measured)
        points = experiment.collocation(args.points)
        layers, state, loss, parts = train_step(layers, state, reactions, points, measured_at, measured, args.variant)
        loss.block_until_ready()
        if step % 50 == 0:
            print(f"step {step} loss {float(loss):.4f} fit {float(parts[0]):.4f} physics {float(parts[1]):.4f}", flush=True)
        now = time.perf_counter()
        if step == 0:
            begin = now  # compiled
        times.append(1e3 * (now - last))
        last = now
        if now - begin > args.max_seconds:
            break
    times = times[5:]
    print(json.dumps({"case": "cb02", "variant": args.variant, "steps": len(times),
                      "mean_ms": statistics.fmean(times), "median_ms": statistics.median(times)}))


if __name__ == "__main__":
    main()
