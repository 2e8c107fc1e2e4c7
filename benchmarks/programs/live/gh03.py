"""Explicit wave propagation on an unstructured triangle mesh (JAX)."""
import argparse
import dataclasses
import functools
import json
import statistics
import time

PROGRAM = "gh03"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 3000
WARMUP = 3


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=30.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


ARGS = parse_args()
if ARGS.device == "cpu":
    import os
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np
import jax
import jax.numpy as jnp


class Domain:
    """Connectivity and coordinates; hashable so that solvers specialise on it."""
    points: tuple
    cells: tuple
    damping: float

    def geometry(self):
        xy = np.asarray(self.points, np.float32)
        tri = np.asarray(self.cells, np.int32)
        a, b, c = xy[tri[:, 0]], xy[tri[:, 1]], xy[tri[:, 2]]
        det = (b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) - (c[:, 0] - a[:, 0]) * (b[:, 1] - a[:, 1])
        gx = np.stack([b[:, 1] - c[:, 1], c[:, 1] - a[:, 1], a[:, 1] - b[:, 1]], 1) / det[:, None]
        gy = np.stack([c[:, 0] - b[:, 0], a[:, 0] - c[:, 0], b[:, 0] - a[:, 0]], 1) / det[:, None]
        area = np.abs(det) * 0.5
        mass = np.zeros(len(xy), np.float32)
        np.add.at(mass, tri.reshape(-1), np.repeat(area / 3.0, 3))
        return tri, gx, gy, area, mass


def domain_type(variant):
    return dataclasses.dataclass(frozen=True, eq=variant == "slow")(Domain)


def build_domain(kind, n, seed=5):
    rng = np.random.default_rng(seed)
    axis = np.linspace(0.0, 1.0, n)
    xy = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    xy = xy + rng.uniform(-0.2, 0.2, xy.shape) / n
    i, j = np.meshgrid(np.arange(n - 1), np.arange(n - 1), indexing="ij")
    p = (i * n + j).reshape(-1)
    tri = np.concatenate([np.stack([p, p + n, p + 1], 1), np.stack([p + n, p + n + 1, p + 1], 1)])
    return kind(points=tuple(map(tuple, xy.tolist())), cells=tuple(map(tuple, tri.tolist())), damping=0.02)


@functools.partial(jax.jit, static_argnames=("domain", "substeps"), donate_argnums=(0,))
def advance(state, speed, source, domain, substeps):
    tri, gx, gy, area, mass = map(jnp.asarray, domain.geometry())
    dt = 0.1 / np.sqrt(len(domain.points))
    inv_mass = 1.0 / mass

    def force(u):
        nodal = u[tri]
        ux = jnp.sum(nodal * gx, 1)
        uy = jnp.sum(nodal * gy, 1)
        k = (speed * speed * area)[:, None]
        local = k * (ux[:, None] * gx + uy[:, None] * gy)
        return jnp.zeros_like(u).at[tri.reshape(-1)].add(local.reshape(-1))

    def body(_, carry):
        u, v = carry
        acc = source - force(u) * inv_mass - domain.damping * v
        v = v + dt * acc
        return u + dt * v, v

    u, v = jax.lax.fori_loop(0, substeps, body, state)
    energy = 0.5 * jnp.sum(mass * v * v)
    return (u, v), energy


class Receivers:
    def __init__(self, nodes, count):
        self.index = jnp.asarray(np.linspace(0, nodes - 1, count).astype(np.int32))
        self.rows = []
        self.read = jax.jit(lambda u, i: u[i])

    def sample(self, u):
        self.rows.append(np.asarray(self.read(u, self.index)))
        if len(self.rows) >= 256:
            self.rows = [np.mean(self.rows, 0)]


class Shot:
    def __init__(self, domain, substeps):
        self.domain = domain
        self.substeps = substeps
        nodes = len(domain.points)
        xy = np.asarray(domain.points, np.float32)
        self.shape = jnp.asarray(np.exp(-((xy - 0.5) ** 2).sum(1) * 400.0))
        self.speed = jnp.asarray(
            np.random.default_rng(1).uniform(0.8, 1.2, len(domain.cells)).astype(np.float32))
        self.state = (jnp.zeros(nodes), jnp.zeros(nodes))
        self.receivers = Receivers(nodes, 64)
        self.frame = 0
        self.energy = []

    def ricker(self):
        a = (0.05 * self.frame - 1.0) ** 2
        return float((1.0 - 2.0 * a) * np.exp(-a))

    def step(self):
        source = self.shape * self.ricker()
        self.state, energy = advance(self.state, self.speed, source, domain=self.domain, substeps=self.substeps)
        self.receivers.sample(self.state[0])
        self.energy.append(float(energy))
        self.frame += 1


def run_loop(args, step):
    for _ in range(min(WARMUP, max(1, args.steps))):
        step()
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        with jax.profiler.trace(args.trace):
            for _ in range(4):
                step()


def main():
    n, substeps = (300, 60) if ARGS.device == "cuda" else (150, 2)
    domain = build_domain(domain_type(ARGS.variant), n)
    shot = Shot(domain, substeps)
    run_loop(ARGS, shot.step)


if __name__ == "__main__":
    main()
