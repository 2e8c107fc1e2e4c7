"""Ensemble of two-dimensional turbulent flows advanced in time with a dynamic closure."""
import argparse
import json
import os
import statistics
import time
from functools import partial
from typing import NamedTuple

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

PROGRAM = "ge09"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 700
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
if ARGS.device == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class Flow(NamedTuple):
    vorticity: jax.Array
    viscosity: jax.Array
    tick: jax.Array


class Grid(NamedTuple):
    n: int
    kx: np.ndarray
    ky: np.ndarray
    laplacian: np.ndarray
    inverse: np.ndarray
    keep: np.ndarray


def make_grid(n):
    kx = np.fft.rfftfreq(n, 1.0 / n).astype(np.float32)[None, :]
    ky = np.fft.fftfreq(n, 1.0 / n).astype(np.float32)[:, None]
    k2 = kx ** 2 + ky ** 2
    inverse = np.where(k2 > 0, 1.0 / np.maximum(k2, 1e-9), 0.0).astype(np.float32)
    keep = ((np.abs(kx) < n / 3) & (np.abs(ky) < n / 3)).astype(np.float32)
    return Grid(n, kx, ky, k2.astype(np.float32), inverse, keep)


def to_real(grid, field):
    return jnp.fft.irfft2(field, s=(grid.n, grid.n))


def velocities(grid, spectrum):
    stream = spectrum * grid.inverse
    return to_real(grid, 1j * grid.ky * stream), to_real(grid, -1j * grid.kx * stream)


def advection(grid, spectrum):
    u, v = velocities(grid, spectrum)
    gx = to_real(grid, 1j * grid.kx * spectrum)
    gy = to_real(grid, 1j * grid.ky * spectrum)
    return jnp.fft.rfft2(u * gx + v * gy) * grid.keep


def estimate_viscosity(grid, widths, spectrum):
    """Eddy viscosity from the transfer between pairs of scales, averaged over filter widths."""
    u, v = velocities(grid, spectrum)
    w = to_real(grid, spectrum)
    flux_x, flux_y = jnp.fft.rfft2(u * w), jnp.fft.rfft2(v * w)
    top, bottom = 0.0, 0.0
    for width in widths:
        window = jnp.exp(-grid.laplacian * width ** 2 / 24)
        fu, fv = velocities(grid, spectrum * window)
        fw = to_real(grid, spectrum * window)
        gx = to_real(grid, 1j * grid.kx * spectrum * window)
        gy = to_real(grid, 1j * grid.ky * spectrum * window)
        sx = to_real(grid, flux_x * window) - fu * fw
        sy = to_real(grid, flux_y * window) - fv * fw
        top = top + jnp.mean(sx * gx + sy * gy)
        bottom = bottom + jnp.mean(gx ** 2 + gy ** 2)
    return jnp.clip(-top / (bottom + 1e-12), 1e-5, 5e-3)


def substep(grid, widths, dt, interval, flow):
    viscosity = lax.cond(flow.tick % interval == 0,
                         lambda w, nu: estimate_viscosity(grid, widths, w),
                         lambda w, nu: nu,
                         flow.vorticity, flow.viscosity)
    decay = jnp.exp(-viscosity * grid.laplacian * dt)
    first = advection(grid, flow.vorticity)
    middle = (flow.vorticity - dt * first) * decay
    second = advection(grid, middle)
    spectrum = flow.vorticity * decay - 0.5 * dt * (first * decay + second)
    return Flow(spectrum, viscosity, flow.tick + 1)


def build_advance(grid, widths, dt, interval, substeps, tick_axis):
    axes = Flow(0, 0, tick_axis)
    member = partial(substep, grid, widths, dt, interval)
    ensemble = jax.vmap(member, in_axes=(axes,), out_axes=axes)

    @partial(jax.jit, donate_argnums=0)
    def advance(flow):
        flow, _ = lax.scan(lambda s, _: (ensemble(s), None), flow, None, length=substeps)
        energy = jnp.mean(jnp.abs(flow.vorticity) ** 2 * grid.inverse, axis=(1, 2))
        return flow, jnp.stack([energy.mean(), energy.std(), flow.viscosity.mean()])

    return advance


def initial_flow(grid, members, shared_tick, seed):
    noise = jax.random.normal(jax.random.key(seed), (members, grid.n, grid.n), dtype=jnp.float32)
    envelope = np.exp(-((np.sqrt(grid.laplacian) - 8.0) / 4.0) ** 2)
    spectrum = jnp.fft.rfft2(noise) * envelope * grid.keep
    tick = jnp.zeros((), jnp.int32) if shared_tick else jnp.zeros((members,), jnp.int32)
    return Flow(spectrum, jnp.full((members,), 1e-3, jnp.float32), tick)


class Forecast:
    def __init__(self, cfg, variant):
        grid = make_grid(cfg["n"])
        shared = variant == "fixed"
        self.advance = build_advance(grid, cfg["widths"], cfg["dt"], cfg["interval"], cfg["substeps"],
                                     None if shared else 0)
        self.flow = initial_flow(grid, cfg["members"], shared, seed=0)
        self.records = []

    def step(self):
        self.flow, summary = self.advance(self.flow)
        self.records.append(np.asarray(summary))
        del self.records[:-100]


def run_loop(args, step):
    for _ in range(WARMUP):
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
    if ARGS.device == "cuda":
        cfg = dict(n=256, members=32, substeps=32, interval=16, dt=2e-4, widths=(0.05, 0.1, 0.2, 0.4, 0.8))
    else:
        cfg = dict(n=32, members=2, substeps=4, interval=2, dt=2e-4, widths=(0.2, 0.4))
    run_loop(ARGS, Forecast(cfg, ARGS.variant).step)


if __name__ == "__main__":
    main()
