"""Molecular dynamics of many replicas of a fluid with a learned pair potential (JAX)."""
import argparse
import json
import os
import statistics
import time
from functools import partial

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.25")

import jax
import jax.numpy as jnp
import numpy as np

PROGRAM = "gl05"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 320
WARMUP = 3


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=50.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def run_loop(args, step, finish):
    for _ in range(WARMUP):
        step()
    finish()
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    finish()
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        with jax.profiler.trace(args.trace):
            for _ in range(4):
                step()
            finish()


BOX = 11.0
DT = 2e-3
REFRESH = 5
CUTOFF = 2.5


def minimum_image(d):
    return d - BOX * jnp.round(d / BOX)


def neighbours(pos, count):
    n = pos.shape[0]
    d = minimum_image(pos[:, None, :] - pos[None, :, :])
    dist2 = jnp.sum(d * d, axis=-1) + jnp.where(jnp.eye(n, dtype=bool), 1e6, 0.0)
    return jax.lax.top_k(-dist2, count)[1].astype(jnp.int32)


def init_potential(key, radial, hidden):
    k1, k2, k3 = jax.random.split(key, 3)
    return {"w1": jax.random.normal(k1, (radial, hidden)) / np.sqrt(radial),
            "b1": jnp.zeros(hidden),
            "w2": jax.random.normal(k2, (hidden, hidden)) / np.sqrt(hidden),
            "b2": jnp.zeros(hidden),
            "w3": 0.02 * jax.random.normal(k3, (hidden,)) / np.sqrt(hidden)}


def energy(pos, nbr, params):
    d = minimum_image(pos[:, None, :] - pos[nbr])
    r = jnp.sqrt(jnp.sum(d * d, axis=-1) + 1e-6)
    switch = jnp.where(r < CUTOFF, 0.5 * (jnp.cos(jnp.pi * r / CUTOFF) + 1.0), 0.0)
    centres = jnp.linspace(0.6, CUTOFF, params["w1"].shape[0])
    feats = jnp.exp(-8.0 * (r[..., None] - centres) ** 2)
    h = jnp.tanh(feats @ params["w1"] + params["b1"])
    h = jnp.tanh(h @ params["w2"] + params["b2"])
    learned = h @ params["w3"]
    core = 0.05 * jnp.exp(-4.0 * (r - 0.8))
    return 0.5 * jnp.sum((learned + core) * switch)


def observe(pos, vel, nbr):
    d = minimum_image(pos[:, None, :] - pos[nbr[:, :8]])
    near = jnp.mean(jnp.sqrt(jnp.sum(d * d, axis=-1) + 1e-6))
    return jnp.stack([jnp.mean(jnp.sum(vel * vel, axis=-1)) / 3.0, near])


def advance(pos, vel, nbr, tick, key, params, length):
    """Langevin steps of one replica."""
    count = nbr.shape[1]
    force = jax.grad(energy)

    def inner(carry, noise_key):
        pos, vel, nbr, tick = carry
        nbr = jax.lax.cond(tick % REFRESH == 0, lambda p, old: neighbours(p, count), lambda p, old: old, pos, nbr)
        vel = vel - DT * force(pos, nbr, params)
        kick = jax.random.normal(noise_key, vel.shape)
        vel = 0.999 * vel + 0.0447 * 0.8 * kick
        pos = (pos + DT * vel) % BOX
        return (pos, vel, nbr, tick + 1), None

    keys = jax.random.split(key, length)
    (pos, vel, nbr, tick), _ = jax.lax.scan(inner, (pos, vel, nbr, tick), keys)
    return pos, vel, nbr, tick, observe(pos, vel, nbr)


class Ensemble:
    def __init__(self, replicas, particles, count, radial, hidden, length, shared_tick):
        key = jax.random.PRNGKey(0)
        kp, kv, kn, self.key = jax.random.split(key, 4)
        side = int(np.ceil(particles ** (1 / 3)))
        grid = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), -1).reshape(-1, 3)[:particles]
        lattice = jnp.asarray(grid * (BOX / side), dtype=jnp.float32)
        self.pos = (lattice + 0.05 * jax.random.normal(kp, (replicas, particles, 3))) % BOX
        self.vel = jax.random.normal(kv, (replicas, particles, 3))
        self.nbr = jnp.zeros((replicas, particles, count), jnp.int32)
        self.params = init_potential(kn, radial, hidden)
        self.tick = jnp.zeros((), jnp.int32) if shared_tick else jnp.zeros(replicas, jnp.int32)
        axis = None if shared_tick else 0
        many = jax.vmap(partial(advance, length=length),
                        in_axes=(0, 0, 0, axis, 0, None), out_axes=(0, 0, 0, axis, 0))
        self.many = jax.jit(many, donate_argnums=(0, 1, 2))
        self.replicas = replicas
        self.history = []

    def run(self):
        self.key, sub = jax.random.split(self.key)
        keys = jax.random.split(sub, self.replicas)
        self.pos, self.vel, self.nbr, self.tick, seen = self.many(
            self.pos, self.vel, self.nbr, self.tick, keys, self.params)
        self.history.append(seen)
        if len(self.history) == 32:
            block = np.asarray(jnp.stack(self.history))
            self.temperature = float(block[..., 0].mean())
            self.history.clear()

    def finish(self):
        jax.block_until_ready((self.pos, self.vel))


def main():
    args = parse_args()
    if args.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
        size = dict(replicas=2, particles=64, count=8, radial=4, hidden=8, length=5)
    else:
        size = dict(replicas=32, particles=1024, count=40, radial=16, hidden=64, length=20)
    ensemble = Ensemble(shared_tick=args.variant == "fixed", **size)
    run_loop(args, ensemble.run, ensemble.finish)


if __name__ == "__main__":
    main()
