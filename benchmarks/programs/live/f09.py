"""Many independent CMA-ES searches side by side, in JAX."""
import os
from functools import partial

from blocks_f import Meter, parse

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
ARGS = parse(["slow", "fixed"])
if ARGS.device == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from jax import lax

DIM, POP, SEARCHES, PERIOD = (6, 8, 3, 5) if ARGS.tiny else (24, 32, 256, 10)
GEN_AXIS = 0 if ARGS.variant == "slow" else None
AXES = {"mean": 0, "sigma": 0, "cov": 0, "basis": 0, "scale": 0, "path": 0, "gen": GEN_AXIS}


def rosenbrock(x):
    return jnp.sum(100.0 * (x[..., 1:] - x[..., :-1] ** 2) ** 2 + (1.0 - x[..., :-1]) ** 2, axis=-1)


def recombination():
    mu = POP // 2
    w = jnp.log(mu + 0.5) - jnp.log(jnp.arange(1, mu + 1))
    w = w / w.sum()
    return mu, w, 1.0 / jnp.sum(w ** 2)


def refresh(cov, basis, scale):
    cov = 0.5 * (cov + cov.T)
    vals, vecs = jnp.linalg.eigh(cov)
    return vecs, jnp.sqrt(jnp.maximum(vals, 1e-10))


def keep(cov, basis, scale):
    return basis, scale


def generation(s, key):
    mu, w, mueff = recombination()
    cs = (mueff + 2) / (DIM + mueff + 5)
    cmu = 0.3 * mueff / DIM
    basis, scale = lax.cond(s["gen"] % PERIOD == 0, refresh, keep, s["cov"], s["basis"], s["scale"])
    z = jax.random.normal(key, (POP, DIM))
    y = (z * scale) @ basis.T
    f = rosenbrock(s["mean"] + s["sigma"] * y)
    best = jnp.argsort(f)[:mu]
    yb = y[best]
    step = w @ yb
    white = basis @ ((basis.T @ step) / scale)
    path = (1 - cs) * s["path"] + jnp.sqrt(cs * (2 - cs) * mueff) * white
    cmu = jnp.minimum(cmu, 0.2)
    cov = (1 - cmu) * s["cov"] + cmu * (yb.T * w) @ yb
    sigma = s["sigma"] * jnp.exp(0.3 * (jnp.linalg.norm(path) / jnp.sqrt(DIM) - 1.0))
    return {"mean": s["mean"] + s["sigma"] * step, "sigma": jnp.clip(sigma, 1e-6, 10.0), "cov": cov,
            "basis": basis, "scale": scale, "path": path, "gen": s["gen"] + 1}


@partial(jax.jit, donate_argnums=0)
def advance(state, key):
    many = jax.vmap(generation, in_axes=(AXES, 0), out_axes=AXES)

    def body(i, s):
        return many(s, jax.random.split(jax.random.fold_in(key, i), SEARCHES))
    return lax.fori_loop(0, PERIOD, body, state)


def start(key):
    gen = jnp.zeros((), jnp.int32) if GEN_AXIS is None else jnp.zeros((SEARCHES,), jnp.int32)
    eye = jnp.tile(jnp.eye(DIM), (SEARCHES, 1, 1))
    return {"mean": jax.random.normal(key, (SEARCHES, DIM)), "sigma": jnp.full((SEARCHES,), 0.5),
            "cov": eye, "basis": eye + 0.0, "scale": jnp.ones((SEARCHES, DIM)),
            "path": jnp.zeros((SEARCHES, DIM)), "gen": gen}


def main():
    key = jax.random.key(8)
    state = start(key)
    keys = jax.random.split(key, 64)
    print("devices", jax.devices())
    for i in range(2):
        state = advance(state, keys[i])
    holder = [state]
    meter = Meter(lambda: jax.block_until_ready(holder[0]))
    for i in meter.loop(ARGS.steps):
        holder[0] = advance(holder[0], keys[i % 64])
        if (i + 1) % 10 == 0 and float(rosenbrock(holder[0]["mean"]).max()) < 1e-12:
            print("all searches done")
            break
    print("best", float(rosenbrock(holder[0]["mean"]).min()))
    meter.report()


if __name__ == "__main__":
    main()
