"""Classifier-free guided ancestral sampling of latent vectors with a residual MLP denoiser (JAX)."""
import argparse
import functools
import json
import os
import statistics
import sys
import time

if "cpu" in sys.argv:
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np


def run_steps(name, args, step, ready, warmup=3):
    for i in range(warmup):
        step(i)
    ready()
    laps = []
    begin = last = time.perf_counter()
    for i in range(args.steps):
        step(warmup + i)
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and now - begin > args.max_seconds:
            break
    ready()
    mean = (time.perf_counter() - begin) / len(laps)
    print(json.dumps({"program": name, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(mean * 1e3, 3),
                      "step_ms_median": round(statistics.median(laps) * 1e3, 3)}), flush=True)
    if args.trace:
        for i in range(2):
            step(warmup + len(laps) + i)
        ready()
        with jax.profiler.trace(args.trace):
            for i in range(4):
                step(warmup + len(laps) + 2 + i)
            ready()


def parse_args(variants, steps):
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=variants, default=variants[0])
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=steps)
    ap.add_argument("--max-seconds", type=float, default=0.0)
    ap.add_argument("--trace", default=None)
    return ap.parse_args()


def init(key, dim, width, hidden, depth, classes):
    def mat(k, i, o):
        return (jax.random.normal(k, (i, o)) * i ** -0.5).astype(jnp.bfloat16)

    keys = iter(jax.random.split(key, 4 + 3 * depth))
    blocks = [{"up": mat(next(keys), width, hidden), "bias": jnp.zeros((hidden,), jnp.bfloat16),
               "down": mat(next(keys), hidden, width) * 0.3, "film": mat(next(keys), 128, 2 * width)} for _ in range(depth)]
    return {"inp": mat(next(keys), dim, width), "out": mat(next(keys), width, dim), "cls": mat(next(keys), classes + 1, 128),
            "blocks": blocks}


def denoiser(params, x, t, label):
    freq = jnp.exp(-jnp.arange(64) / 64 * 9.0) * t * 1000.0
    cond = jnp.concatenate([jnp.sin(freq), jnp.cos(freq)]).astype(jnp.bfloat16) + params["cls"][label]
    h = x.astype(jnp.bfloat16) @ params["inp"]
    for blk in params["blocks"]:
        scale, shift = jnp.split(cond @ blk["film"], 2, axis=-1)
        f = h.astype(jnp.float32)
        f = (f - f.mean(-1, keepdims=True)) * jax.lax.rsqrt(f.var(-1, keepdims=True) + 1e-5)
        u = f.astype(jnp.bfloat16) * (1 + scale) + shift
        u = jax.nn.gelu(u @ blk["up"] + blk["bias"], approximate=True)
        h = h + u @ blk["down"]
    return (h @ params["out"]).astype(jnp.float32)


@functools.partial(jax.jit, donate_argnums=(1,))
def ancestral_step(params, x, label, key, t, alpha, alpha_prev, guidance):
    null = jnp.full_like(label, params["cls"].shape[0] - 1)
    both = denoiser(params, jnp.concatenate([x, x]), t, jnp.concatenate([label, null]))
    cond, uncond = jnp.split(both, 2)
    eps = uncond + guidance * (cond - uncond)
    start = jnp.clip((x - jnp.sqrt(1 - alpha) * eps) / jnp.sqrt(alpha), -3, 3)
    sigma = jnp.sqrt((1 - alpha_prev) / (1 - alpha) * (1 - alpha / alpha_prev))
    mean = jnp.sqrt(alpha_prev) * start + jnp.sqrt(jnp.maximum(1 - alpha_prev - sigma ** 2, 0)) * eps
    return mean + sigma * jax.random.normal(key, x.shape)


def main():
    args = parse_args(["healthy"], 300)
    big = args.device == "cuda"
    batch, dim, width, hidden, depth = (16384, 256, 2048, 8192, 8) if big else (8, 16, 32, 64, 2)
    rounds = 50
    params = init(jax.random.key(0), dim, width, hidden, depth, 1000)
    alphas = np.cos(np.linspace(0.02, 0.97, rounds + 1) * np.pi / 2) ** 2
    root = jax.random.key(1)
    state = {}

    def restart(i):
        noise, pick = jax.random.split(jax.random.fold_in(root, 10_000 + i))
        state["x"] = jax.random.normal(noise, (batch, dim))
        state["label"] = jax.random.randint(pick, (batch,), 0, 1000)

    def step(i):
        at = i % rounds
        if at == 0 or not state:
            restart(i)
        k = rounds - at
        key = jax.random.fold_in(root, i)
        state["x"] = ancestral_step(params, state["x"], state["label"], key, np.float32(k / rounds), np.float32(alphas[k]),
                                    np.float32(alphas[k - 1]), np.float32(3.0))

    run_steps("x04", args, step, lambda: jax.block_until_ready(state["x"]))


if __name__ == "__main__":
    main()
