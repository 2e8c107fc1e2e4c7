"""Patch transformer for long-horizon forecasting of many series, with gradient accumulation (JAX)."""
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


def share_card():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"


def reserve_part():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true"
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.6"


def init(key, patch, tokens, horizon, dim, depth):
    keys = iter(jax.random.split(key, 8 + 8 * depth))

    def dense(i, o):
        return {"w": jax.random.normal(next(keys), (i, o)) * i ** -0.5, "b": jnp.zeros((o,))}

    def norm():
        return {"g": jnp.ones((dim,)), "b": jnp.zeros((dim,))}

    return {"inp": dense(patch, dim), "pos": 0.02 * jax.random.normal(next(keys), (tokens, dim)), "norm": norm(),
            "out": dense(dim, horizon),
            "blocks": [{"n1": norm(), "n2": norm(), "q": dense(dim, dim), "k": dense(dim, dim), "v": dense(dim, dim),
                        "o": dense(dim, dim), "up": dense(dim, 4 * dim), "down": dense(4 * dim, dim)} for _ in range(depth)]}


def linear(p, x):
    return x @ p["w"].astype(x.dtype) + p["b"].astype(x.dtype)


def layer_norm(p, x):
    f = x.astype(jnp.float32)
    f = (f - f.mean(-1, keepdims=True)) * jax.lax.rsqrt(f.var(-1, keepdims=True) + 1e-5)
    return (f * p["g"] + p["b"]).astype(x.dtype)


def forecast(params, series, heads, patch):
    b, t = series.shape
    mean, std = series.mean(1, keepdims=True), series.std(1, keepdims=True) + 1e-5
    x = linear(params["inp"], ((series - mean) / std).reshape(b, t // patch, patch).astype(jnp.bfloat16))
    x = x + params["pos"].astype(x.dtype)
    for blk in params["blocks"]:
        h = layer_norm(blk["n1"], x)
        q, k, v = (linear(blk[n], h).reshape(b, t // patch, heads, -1) for n in "qkv")
        x = x + linear(blk["o"], jax.nn.dot_product_attention(q, k, v).reshape(x.shape))
        h = jax.nn.gelu(linear(blk["up"], layer_norm(blk["n2"], x)))
        x = x + linear(blk["down"], h)
    pooled = layer_norm(params["norm"], x).mean(1)
    return linear(params["out"], pooled).astype(jnp.float32) * std + mean


@functools.partial(jax.jit, static_argnums=(3, 4))
def micro_grads(params, series, future, heads, patch):
    def loss(p):
        return jnp.abs(forecast(p, series, heads, patch) - future).mean()

    return jax.grad(loss)(params)


@functools.partial(jax.jit, donate_argnums=(0,))
def add_grads(total, grads):
    return jax.tree.map(jnp.add, total, grads)


@jax.jit
def adam_state(params):
    return {"m": jax.tree.map(jnp.zeros_like, params), "v": jax.tree.map(jnp.zeros_like, params), "count": jnp.zeros((), jnp.int32)}


@functools.partial(jax.jit, donate_argnums=(0, 1, 2), static_argnums=(3,))
def apply_adamw(params, opt, grads, parts):
    count = opt["count"] + 1
    rate = 3e-4 * jnp.minimum(1.0, count / 100)
    grads = jax.tree.map(lambda g: g / parts, grads)
    m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, opt["m"], grads)
    v = jax.tree.map(lambda a, g: 0.99 * a + 0.01 * g * g, opt["v"], grads)
    c1, c2 = 1 - 0.9 ** count, 1 - 0.99 ** count
    params = jax.tree.map(lambda p, a, b: p - rate * ((a / c1) / (jnp.sqrt(b / c2) + 1e-8) + 0.01 * p), params, m, v)
    return params, {"m": m, "v": v, "count": count}


def main():
    args = parse_args(["slow", "fixed"], 80)
    {"slow": share_card, "fixed": reserve_part}[args.variant]()
    big = args.device == "cuda"
    batch, context, patch, horizon, dim, depth, heads, parts = (256, 1024, 16, 192, 768, 12, 12, 4) if big else (4, 64, 8, 8, 32, 2, 2, 2)
    params = init(jax.random.key(0), patch, context // patch, horizon, dim, depth)
    state = {"params": params, "opt": adam_state(params)}

    rng = np.random.default_rng(0)
    walks = np.cumsum(rng.standard_normal((8, batch, context + horizon), dtype=np.float32), axis=2)
    pool = [(jax.device_put(w[:, :context]), jax.device_put(w[:, context:])) for w in walks]

    def step(i):
        total = None
        for j in range(parts):
            series, future = pool[(i * parts + j) % len(pool)]
            grads = micro_grads(state["params"], series, future, heads, patch)
            total = grads if total is None else add_grads(total, grads)
        state["params"], state["opt"] = apply_adamw(state["params"], state["opt"], total, parts)

    run_steps("x09", args, step, lambda: jax.block_until_ready(state))


if __name__ == "__main__":
    main()
