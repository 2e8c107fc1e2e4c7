"""Direct numerical simulation of forced isotropic turbulence (pseudo-spectral, rotational form, RK3)."""
import argparse
import json
import statistics
import time
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

PROGRAM = "z04"


@dataclass(frozen=True)
class SolverConfig:
    n: int = 384
    viscosity: float = 1.2e-3
    dt: float = 1.5e-3
    forcing: float = 0.1
    force_shell: float = 2.5
    report_every: int = 25

    @classmethod
    def for_device(cls, device):
        return cls(n=16, report_every=2) if device == "cpu" else cls()


class Spectral(NamedTuple):
    kx: jax.Array
    ky: jax.Array
    kz: jax.Array
    inv_k2: jax.Array
    keep: jax.Array
    shell: jax.Array
    weight: jax.Array


# Wray's low-storage third-order scheme
RK_GAMMA = (8 / 15, 5 / 12, 3 / 4)
RK_ZETA = (0.0, -17 / 60, -5 / 12)


def make_spectral(cfg):
    n = cfg.n
    full = np.fft.fftfreq(n, 1 / n).astype(np.float32)
    half = np.arange(n // 2 + 1, dtype=np.float32)
    kx, ky, kz = full[:, None, None], full[None, :, None], half[None, None, :]
    k2 = kx**2 + ky**2 + kz**2
    cut = n / 3.0
    keep = (np.abs(kx) < cut) & (np.abs(ky) < cut) & (kz < cut)
    weight = np.where((half == 0) | (half == n // 2), 1.0, 2.0).astype(np.float32)[None, None, :]
    return Spectral(
        jnp.asarray(kx), jnp.asarray(ky), jnp.asarray(kz),
        jnp.asarray(np.where(k2 > 0, 1.0 / np.maximum(k2, 1.0), 0.0).astype(np.float32)),
        jnp.asarray(keep.astype(np.float32)),
        jnp.asarray((k2 <= cfg.force_shell**2).astype(np.float32)),
        jnp.asarray(weight),
    )


def to_grid(f_hat, n):
    return jnp.fft.irfftn(f_hat, s=(n, n, n), axes=(-3, -2, -1))


def to_modes(f):
    return jnp.fft.rfftn(f, axes=(-3, -2, -1))


def curl(u, sp):
    ux, uy, uz = u[0], u[1], u[2]
    return 1j * jnp.stack([sp.ky * uz - sp.kz * uy, sp.kz * ux - sp.kx * uz, sp.kx * uy - sp.ky * ux])


def project(f, sp):
    div = (sp.kx * f[0] + sp.ky * f[1] + sp.kz * f[2]) * sp.inv_k2
    return jnp.stack([f[0] - sp.kx * div, f[1] - sp.ky * div, f[2] - sp.kz * div])


def nonlinear(u_hat, sp, n):
    u = to_grid(u_hat, n)
    w = to_grid(curl(u_hat, sp), n)
    lamb = jnp.stack([u[1] * w[2] - u[2] * w[1], u[2] * w[0] - u[0] * w[2], u[0] * w[1] - u[1] * w[0]])
    return project(to_modes(lamb) * sp.keep, sp)


def rhs(u_hat, sp, cfg):
    return nonlinear(u_hat, sp, cfg.n) + cfg.forcing * sp.shell * u_hat


@partial(jax.jit, static_argnames="cfg", donate_argnums=0)
def advance(u_hat, sp, cfg):
    k2 = sp.kx**2 + sp.ky**2 + sp.kz**2
    prev = None
    for gamma, zeta in zip(RK_GAMMA, RK_ZETA):
        slope = rhs(u_hat, sp, cfg)
        incr = gamma * slope if prev is None else gamma * slope + zeta * prev
        decay = jnp.exp(-cfg.viscosity * (gamma + zeta) * cfg.dt * k2)
        u_hat = (u_hat + cfg.dt * incr) * decay
        prev = slope
    return u_hat


@partial(jax.jit, static_argnames="cfg")
def diagnostics(u_hat, sp, cfg):
    k2 = sp.kx**2 + sp.ky**2 + sp.kz**2
    dens = 0.5 * jnp.sum(jnp.abs(u_hat) ** 2, axis=0) * sp.weight / cfg.n**6
    return jnp.stack([dens.sum(), 2 * cfg.viscosity * (k2 * dens).sum()])


@partial(jax.jit, static_argnames="cfg")
def initial_field(key, sp, cfg):
    noise = jax.random.normal(key, (3, cfg.n, cfg.n, cfg.n), jnp.float32)
    k2 = sp.kx**2 + sp.ky**2 + sp.kz**2
    u = to_modes(noise) * jnp.sqrt(k2) * jnp.exp(-k2 / 32.0) * sp.keep
    u = project(u, sp)
    e = 0.5 * jnp.sum(jnp.sum(jnp.abs(u) ** 2, 0) * sp.weight) / cfg.n**6
    return u / jnp.sqrt(2 * e)


def parse_args(variants):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def drive(args, step, wait, steps, warmup):
    for i in range(warmup):
        step(i)
    wait()
    laps, it = [], warmup
    start = last = time.perf_counter()
    for _ in range(steps):
        step(it)
        it += 1
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and now - start > args.max_seconds:
            break
    wait()
    total = time.perf_counter() - start
    print(json.dumps({
        "program": PROGRAM, "variant": args.variant, "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 3),
        "step_ms_median": round(1e3 * statistics.median(laps), 3),
    }), flush=True)
    if args.trace:
        for _ in range(2):
            step(it)
            it += 1
        wait()
        with jax.profiler.trace(args.trace):
            for _ in range(4):
                with jax.profiler.StepTraceAnnotation("train", step_num=it):
                    step(it)
                it += 1
            wait()


class Simulation:
    def __init__(self, cfg):
        self.cfg = cfg
        self.sp = make_spectral(cfg)
        self.u = initial_field(jax.random.key(3), self.sp, cfg)
        self.series = []

    def step(self, i):
        self.u = advance(self.u, self.sp, self.cfg)
        if i % self.cfg.report_every == 0:
            energy, eps = np.asarray(diagnostics(self.u, self.sp, self.cfg))
            if not np.isfinite(energy):
                raise FloatingPointError("the field diverged")
            self.series.append((i, float(energy), float(eps)))

    def wait(self):
        self.u.block_until_ready()


def main():
    args = parse_args(["healthy"])
    if args.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    sim = Simulation(SolverConfig.for_device(args.device))
    drive(args, sim.step, sim.wait, args.steps or (400 if args.device == "cuda" else 4), warmup=4)


if __name__ == "__main__":
    main()
