"""Molten salt droplet: direct Coulomb and Born repulsion between all ions, Langevin dynamics."""
import argparse
import functools
import json
import os
import statistics
import time

PROGRAM = "gg06"
CHOICES = ["healthy"]
DEFAULT_STEPS = 550
WARMUP = 2
INNER = 100


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


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
        record_trace(args.trace, step, wait)


def record_trace(path, step, wait):
    import glob
    import gzip
    import shutil
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for i in range(4):
                with jax.profiler.StepTraceAnnotation("step", step_num=i):
                    step()
            wait()
        found = glob.glob(os.path.join(folder, "**", "*.trace.json.gz"), recursive=True)[0]
        if path.endswith(".gz"):
            shutil.copy(found, path)
        else:
            with gzip.open(found, "rb") as src, open(path, "wb") as dst:
                shutil.copyfileobj(src, dst)


ARGS = parse_args()
if ARGS.device == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
from typing import NamedTuple

IONS = 12288 if ARGS.device == "cuda" else 512
DT = 0.002
FRICTION = 0.5
TEMPERATURE = 0.02


class System(NamedTuple):
    x: jax.Array
    y: jax.Array
    z: jax.Array
    vx: jax.Array
    vy: jax.Array
    vz: jax.Array
    key: jax.Array


def lattice(count):
    """Rock salt arrangement cut to the wanted number of ions."""
    side = 1
    while side ** 3 < count:
        side += 1
    i, j, k = jnp.meshgrid(*([jnp.arange(side)] * 3), indexing="ij")
    charge = jnp.where((i + j + k) % 2 == 0, 1.0, -1.0).ravel()[:count]
    points = [1.3 * (a.ravel()[:count] - side / 2) for a in (i, j, k)]
    return points, charge


def pair_force(x, y, z, charge):
    """Sum over all partners; the self term drops out because its displacement is zero."""
    dx = x[:, None] - x[None, :]
    dy = y[:, None] - y[None, :]
    dz = z[:, None] - z[None, :]
    r2 = dx * dx + dy * dy + dz * dz + 1e-2
    inv = jax.lax.rsqrt(r2)
    inv2 = inv * inv
    inv4 = inv2 * inv2
    coulomb = charge[:, None] * charge[None, :] * inv * inv2
    repulsion = 9.0 * 0.1 * inv4 * inv4 * inv2 * inv
    scale = coulomb + repulsion
    return (scale * dx).sum(1), (scale * dy).sum(1), (scale * dz).sum(1)


def confine(p, fx, fy, fz, radius):
    r = jnp.sqrt(p[0] ** 2 + p[1] ** 2 + p[2] ** 2) + 1e-6
    pull = -0.5 * jnp.maximum(r - radius, 0.0) / r
    return fx + pull * p[0], fy + pull * p[1], fz + pull * p[2]


def integrate(system, charge, radius):
    """BAOAB splitting with unit masses."""
    decay = jnp.exp(-FRICTION * DT)
    kick = jnp.sqrt((1 - decay ** 2) * TEMPERATURE)

    def tick(carry, _):
        s, f = carry
        key, sub = jax.random.split(s.key)
        noise = jax.random.normal(sub, (3, IONS))
        v = [a + 0.5 * DT * b for a, b in zip((s.vx, s.vy, s.vz), f)]
        p = [a + 0.5 * DT * b for a, b in zip((s.x, s.y, s.z), v)]
        v = [decay * a + kick * n for a, n in zip(v, noise)]
        p = [a + 0.5 * DT * b for a, b in zip(p, v)]
        f = confine(p, *pair_force(*p, charge), radius)
        v = [a + 0.5 * DT * b for a, b in zip(v, f)]
        return (System(*p, *v, key), f), None

    start = confine((system.x, system.y, system.z), *pair_force(system.x, system.y, system.z, charge), radius)
    (system, _), _ = jax.lax.scan(tick, (system, start), None, length=INNER)
    kinetic = 0.5 * (system.vx ** 2 + system.vy ** 2 + system.vz ** 2).mean()
    return system, kinetic


class Simulation:
    def __init__(self):
        points, self.charge = lattice(IONS)
        k1, k2 = jax.random.split(jax.random.key(0))
        v = jnp.sqrt(TEMPERATURE) * jax.random.normal(k1, (3, IONS))
        self.system = System(*points, v[0], v[1], v[2], k2)
        radius = 1.3 * IONS ** (1 / 3)
        self.run = jax.jit(functools.partial(integrate, radius=radius), donate_argnums=0)
        self.kinetic = []

    def step(self):
        self.system, kinetic = self.run(self.system, self.charge)
        self.kinetic.append(kinetic)
        if len(self.kinetic) == 25:
            print(json.dumps({"kinetic": round(float(jnp.stack(self.kinetic).mean()), 5)}), flush=True)
            self.kinetic.clear()

    def wait(self):
        jax.block_until_ready(self.system)


if __name__ == "__main__":
    simulation = Simulation()
    run_loop(ARGS, simulation.step, simulation.wait)
