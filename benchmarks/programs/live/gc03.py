"""Molecular dynamics of several replicas with a small learned pair potential and neighbour lists."""
import argparse
import json
import functools
import os
import statistics
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
if "cpu" in sys.argv:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

PROGRAM = "gc03"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 900
DEFAULT_SECONDS = 50.0
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=DEFAULT_SECONDS)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def run_loop(args, settle, step):
    for _ in range(WARMUP):
        step()
    settle()
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    settle()
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        with jax.profiler.trace(args.trace):
            for _ in range(4):
                step()
            settle()


LENGTH = 24.0
CUTOFF = 3.0


def minimum_image(d):
    return d - LENGTH * jnp.round(d / LENGTH)


def nearest(pos, k):
    square = jnp.zeros((pos.shape[0], pos.shape[0]), pos.dtype)
    for axis in range(3):
        d = minimum_image(pos[:, None, axis] - pos[None, :, axis])
        square = square + d * d
    square = square + jnp.diag(jnp.full(pos.shape[0], 1e6, pos.dtype))
    return jax.lax.top_k(-square, k)[1]


def init_potential(key, basis, width):
    a, b, c = jax.random.split(key, 3)
    return {"centres": jnp.linspace(0.5, CUTOFF, basis),
            "w1": jax.random.normal(a, (basis, width)) / basis ** 0.5,
            "w2": jax.random.normal(b, (width, width)) / width ** 0.5,
            "w3": jax.random.normal(c, (width,)) * 0.05}


def energy(pos, neighbours, net):
    d = minimum_image(pos[:, None, :] - pos[neighbours])
    r = jnp.sqrt(jnp.sum(d * d, -1) + 1e-6)
    smooth = jnp.where(r < CUTOFF, 0.5 * (jnp.cos(jnp.pi * r / CUTOFF) + 1), 0.0)
    f = jnp.exp(-4.0 * (r[..., None] - net["centres"]) ** 2)
    f = jnp.tanh(f @ net["w1"])
    f = jnp.tanh(f @ net["w2"])
    pair = f @ net["w3"] + 0.4 / r ** 4
    return 0.5 * jnp.sum(pair * smooth)


def push(state, net, dt, k, interval, temperature):
    """One Langevin step of one replica."""
    neighbours = jax.lax.cond(state["age"] % interval == 0,
                              lambda p: nearest(p, k), lambda p: state["neighbours"], state["pos"])
    force = -jax.grad(energy)(state["pos"], neighbours, net)
    key, sub = jax.random.split(state["key"])
    kick = jnp.sqrt(2 * 0.1 * temperature * dt) * jax.random.normal(sub, state["vel"].shape)
    vel = (state["vel"] + dt * jnp.clip(force, -20, 20)) * (1 - 0.1 * dt) + kick
    pos = (state["pos"] + dt * vel) % LENGTH
    return {"pos": pos, "vel": vel, "neighbours": neighbours, "key": key, "age": state["age"] + 1}


def build_segment(variant, length, dt, k, interval, temperature):
    axes = {"pos": 0, "vel": 0, "neighbours": 0, "key": 0, "age": 0}
    if variant == "fixed":
        axes["age"] = None
    one = functools.partial(push, dt=dt, k=k, interval=interval, temperature=temperature)
    ensemble = jax.vmap(one, in_axes=(axes, None), out_axes=axes)

    @functools.partial(jax.jit, donate_argnums=0)
    def segment(state, net):
        def body(state, _):
            state = ensemble(state, net)
            return state, jnp.mean(jnp.sum(state["vel"] ** 2, -1), -1)
        state, kinetic = jax.lax.scan(body, state, None, length=length)
        return state, kinetic.mean(0)

    return segment


def start(variant, replicas, atoms, k, seed):
    rng = np.random.default_rng(seed)
    side = int(np.ceil(atoms ** (1 / 3)))
    lattice = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), -1).reshape(-1, 3)[:atoms]
    pos = lattice[None] * (LENGTH / side) + rng.normal(0, 0.05, (replicas, atoms, 3))
    age = jnp.zeros(() if variant == "fixed" else (replicas,), jnp.int32)
    return {"pos": jnp.asarray(pos % LENGTH, jnp.float32),
            "vel": jnp.asarray(rng.normal(0, 1, (replicas, atoms, 3)), jnp.float32),
            "neighbours": jnp.zeros((replicas, atoms, k), jnp.int32),
            "key": jax.random.split(jax.random.PRNGKey(seed), replicas), "age": age}


class Observer:
    def __init__(self, every):
        self.every, self.kept, self.table = every, [], []

    def add(self, kinetic):
        self.kept.append(kinetic)
        if len(self.kept) == self.every:
            self.table.append(np.mean([np.asarray(k) for k in self.kept], 0))
            self.kept.clear()


def main():
    args = parse_args()
    big = args.device == "cuda"
    replicas, atoms, k, basis, width, length = (16, 2048, 32, 16, 32, 10) if big else (2, 64, 8, 8, 8, 4)
    segment = build_segment(args.variant, length, 0.002, k, length, 0.8)
    box = {"state": start(args.variant, replicas, atoms, k, 12)}
    net = init_potential(jax.random.PRNGKey(0), basis, width)
    observer = Observer(10)

    def step():
        box["state"], kinetic = segment(box["state"], net)
        observer.add(kinetic)

    run_loop(args, lambda: jax.block_until_ready(box["state"]), step)


if __name__ == "__main__":
    main()
