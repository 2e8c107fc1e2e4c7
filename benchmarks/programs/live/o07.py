"""JAX: batched autoregressive decoding of a grouped-query decoder over a fixed-size KV cache."""
import argparse
import functools
import json
import os
import statistics
import time

PROGRAM = "o07"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 600
WARMUP = 8


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


ARGS = parse_args() if __name__ == "__main__" else None
if ARGS is not None and ARGS.device == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def run_loop(args, step, pending):
    for _ in range(WARMUP):
        step()
    jax.block_until_ready(pending())
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    jax.block_until_ready(pending())
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        for _ in range(2):
            step()
        jax.block_until_ready(pending())
        with jax.profiler.trace(args.trace):
            for i in range(4):
                with jax.profiler.StepTraceAnnotation("step", step_num=i):
                    step()
            jax.block_until_ready(pending())


def init_params(key, cfg, dtype):
    d, hd, h, kv, ffn, n = cfg["dim"], cfg["head_dim"], cfg["heads"], cfg["kv_heads"], cfg["ffn"], cfg["layers"]
    shapes = {"wq": (d, h * hd), "wkv": (d, 2 * kv * hd), "wo": (h * hd, d), "w1": (d, 2 * ffn), "w2": (ffn, d)}
    keys = jax.random.split(key, len(shapes) + 2)
    layers = {name: jax.random.normal(k, (n,) + s, dtype) * (s[0] ** -0.5)
              for (name, s), k in zip(shapes.items(), keys)}
    layers["g1"] = jnp.ones((n, d), dtype)
    layers["g2"] = jnp.ones((n, d), dtype)
    return {"embed": jax.random.normal(keys[-1], (cfg["vocab"], d), dtype) * 0.02, "layers": layers}


def rms_norm(x, gain):
    x32 = x.astype(jnp.float32)
    return (x32 * lax.rsqrt(jnp.mean(x32 * x32, -1, keepdims=True) + 1e-6)).astype(x.dtype) * gain


def layer_step(cfg, p, x, k_cache, v_cache, pos):
    b, kv, hd = x.shape[0], cfg["kv_heads"], cfg["head_dim"]
    y = rms_norm(x, p["g1"])
    q = (y @ p["wq"]).reshape(b, kv, -1, hd)
    k, v = jnp.split((y @ p["wkv"]).reshape(b, 2 * kv, 1, hd), 2, axis=1)
    k_cache = lax.dynamic_update_slice(k_cache, k, (0, 0, pos, 0))
    v_cache = lax.dynamic_update_slice(v_cache, v, (0, 0, pos, 0))
    scores = jnp.einsum("bkgd,bksd->bkgs", q, k_cache, preferred_element_type=jnp.float32) * hd ** -0.5
    scores = jnp.where(jnp.arange(k_cache.shape[2]) <= pos, scores, -1e30)
    probs = jax.nn.softmax(scores, -1).astype(x.dtype)
    x = x + jnp.einsum("bkgs,bksd->bkgd", probs, v_cache).reshape(b, -1) @ p["wo"]
    gate, up = jnp.split(rms_norm(x, p["g2"]) @ p["w1"], 2, axis=-1)
    return x + (jax.nn.silu(gate) * up) @ p["w2"], k_cache, v_cache


def forward_stacked(cfg, params, cache, x, pos):
    def body(x, scanned):
        p, k, v = scanned
        x, k, v = layer_step(cfg, p, x, k, v, pos)
        return x, (k, v)

    x, cache = lax.scan(body, x, (params["layers"],) + cache)
    return x, cache


def forward_listed(cfg, params, cache, x, pos):
    new = []
    for p, (k, v) in zip(params["layers"], cache):
        x, k, v = layer_step(cfg, p, x, k, v, pos)
        new.append((k, v))
    return x, tuple(new)


def stacked_state(cfg, params, cache):
    return params, cache


def listed_state(cfg, params, cache):
    layers = [{name: w[i] for name, w in params["layers"].items()} for i in range(cfg["layers"])]
    return {"embed": params["embed"], "layers": layers}, tuple((cache[0][i], cache[1][i]) for i in range(cfg["layers"]))


VARIANTS = {"slow": (stacked_state, forward_stacked), "fixed": (listed_state, forward_listed)}


def make_decode(cfg, forward):
    @functools.partial(jax.jit, donate_argnums=(1,))
    def decode(params, cache, tokens, pos):
        x = params["embed"][tokens]
        x, cache = forward(cfg, params, cache, x, pos)
        logits = x @ params["embed"].T
        return jnp.argmax(logits, -1).astype(jnp.int32), cache

    return decode


def main(args):
    if args.device == "cuda":
        dtype = jnp.bfloat16
        cfg = dict(dim=2048, heads=32, kv_heads=8, head_dim=128, ffn=8192, layers=16, vocab=32000, batch=32,
                   prompt=3000, max_len=4096)
    else:
        dtype = jnp.float32
        cfg = dict(dim=32, heads=4, kv_heads=2, head_dim=8, ffn=64, layers=2, vocab=64, batch=2, prompt=8, max_len=32)
    key = jax.random.key(0)
    params = jax.jit(lambda k: init_params(k, cfg, dtype))(key)
    shape = (cfg["layers"], cfg["batch"], cfg["kv_heads"], cfg["max_len"], cfg["head_dim"])
    cache = (jnp.full(shape, 0.01, dtype), jnp.full(shape, 0.02, dtype))
    arrange, forward = VARIANTS[args.variant]
    params, cache = arrange(cfg, params, cache)
    decode = make_decode(cfg, forward)
    state = {"cache": cache, "tokens": jnp.zeros((cfg["batch"],), jnp.int32), "pos": cfg["prompt"]}
    del cache
    emitted = []

    def step():
        state["tokens"], state["cache"] = decode(params, state["cache"], state["tokens"], np.int32(state["pos"]))
        emitted.append(np.asarray(state["tokens"]))
        state["pos"] += 1
        if state["pos"] == cfg["max_len"]:
            state["pos"] = cfg["prompt"]

    run_loop(args, step, lambda: state["cache"])


if __name__ == "__main__":
    main(ARGS)
