"""Neural-population simulator with conduction delays, written in JAX."""
import argparse
import functools
import json
import os
import statistics
import time

import numpy as np

PROGRAM = "gn04"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 3200
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


ARGS = parse_args()
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
if ARGS.device == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp


def run_loop(args, step, wait):
    for _ in range(WARMUP):
        step()
    wait()
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    wait()
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        with jax.profiler.trace(args.trace):
            for _ in range(4):
                step()
            wait()


def wiring(cells, fan_in, depth, seed=0):
    """Random sources, integer delays and weights of each cell's inputs."""
    k1, k2, k3 = jax.random.split(jax.random.PRNGKey(seed), 3)
    source = jax.random.randint(k1, (cells, fan_in), 0, cells, dtype=jnp.int32)
    delay = jax.random.randint(k2, (cells, fan_in), 1, depth, dtype=jnp.int32)
    weight = jax.random.normal(k3, (cells, fan_in)) * (1.2 / fan_in ** 0.5)
    return {"source": source, "delay": delay, "weight": weight}


def delayed_input(history, clock, net):
    depth = history.shape[0]
    row = (clock - net["delay"]) % depth
    return jnp.sum(history[row, net["source"]] * net["weight"], axis=1)


def derivative(state, drive, params):
    v, w = state
    dv = v - v ** 3 / 3 - w + drive + params["bias"]
    dw = params["eps"] * (v + params["a"] - params["b"] * w)
    return dv, dw


def integrate(state, drive, params, dt):
    k1 = derivative(state, drive, params)
    mid = tuple(s + 0.5 * dt * k for s, k in zip(state, k1))
    k2 = derivative(mid, drive, params)
    return tuple(s + dt * k for s, k in zip(state, k2))


def advance(carry, net, params, key, dt=0.05):
    history, state, clock = carry
    drive = delayed_input(history, clock, net)
    noise = 0.1 * jax.random.normal(jax.random.fold_in(key, clock), drive.shape)
    state = integrate(state, drive + noise, params, dt)
    rate = jax.nn.sigmoid(4.0 * state[0])
    history = jax.lax.dynamic_update_index_in_dim(history, rate, clock % history.shape[0], 0)
    summary = jnp.stack([rate.mean(), rate.std(), (rate > 0.5).mean()])
    return (history, state, clock + 1), summary


def compile_advance(variant):
    if variant == "fixed":
        return jax.jit(advance, donate_argnums=(0,))
    return jax.jit(advance)


class Simulation:
    def __init__(self, args):
        big = args.device == "cuda"
        cells, fan_in, depth = (1_000_000, 8, 1000) if big else (2_000, 4, 50)
        self.ticks = 4
        self.net = wiring(cells, fan_in, depth)
        self.params = {"bias": jnp.linspace(0.2, 0.6, cells), "eps": jnp.full((cells,), 0.08),
                       "a": jnp.float32(0.7), "b": jnp.float32(0.8)}
        self.key = jax.random.PRNGKey(7)
        state = (jnp.zeros(cells), jnp.zeros(cells))
        self.carry = (jnp.full((depth, cells), 0.5), state, jnp.int32(0))
        self.advance = compile_advance(args.variant)
        self.log = []
        self.pending = []

    def step(self):
        for _ in range(self.ticks):
            self.carry, summary = self.advance(self.carry, self.net, self.params, self.key)
            self.pending.append(summary)
        if len(self.pending) >= 8:
            self.log.extend(np.asarray(s) for s in jax.device_get(self.pending))
            self.log = self.log[-1000:]
            self.pending.clear()

    def wait(self):
        jax.block_until_ready(self.carry)


def main():
    sim = Simulation(ARGS)
    run_loop(ARGS, sim.step, sim.wait)


if __name__ == "__main__":
    main()
