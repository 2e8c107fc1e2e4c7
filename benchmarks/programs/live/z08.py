"""Streaming text generation in JAX: sliding-window decoder with grouped heads, one jitted step per token."""
import argparse
import json
import statistics
import time
from collections import deque
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

PROGRAM = "z08"


@dataclass(frozen=True)
class DecoderConfig:
    vocab: int = 32000
    dim: int = 2048
    heads: int = 16
    kv_heads: int = 16
    layers: int = 16
    ffn: int = 5632
    window: int = 2048
    batch: int = 64
    lag: int = 2

    @property
    def head_dim(self):
        return self.dim // self.heads

    @classmethod
    def for_device(cls, device):
        if device == "cpu":
            return cls(vocab=64, dim=32, heads=4, kv_heads=4, layers=2, ffn=64, window=16, batch=2, lag=1)
        return cls()


@dataclass(frozen=True)
class EngineOptions:
    jit: tuple = ()

    def compile(self, fn):
        return jax.jit(fn, **dict(self.jit))


ENGINES = {"slow": EngineOptions(), "fixed": EngineOptions(jit=(("donate_argnums", (1,)),))}


def init_params(key, cfg):
    def dense(k, a, b):
        return jax.random.normal(k, (a, b), jnp.bfloat16) * a**-0.5

    keys = jax.random.split(key, cfg.layers + 1)
    kv = cfg.kv_heads * cfg.head_dim
    layers = []
    for k in keys[1:]:
        q, kk, o, g, d = jax.random.split(k, 5)
        layers.append({
            "norm1": jnp.ones(cfg.dim, jnp.bfloat16), "norm2": jnp.ones(cfg.dim, jnp.bfloat16),
            "q": dense(q, cfg.dim, cfg.dim), "kv": dense(kk, cfg.dim, 2 * kv), "o": dense(o, cfg.dim, cfg.dim),
            "gate_up": dense(g, cfg.dim, 2 * cfg.ffn), "down": dense(d, cfg.ffn, cfg.dim),
        })
    return {"embed": jax.random.normal(keys[0], (cfg.vocab, cfg.dim), jnp.bfloat16) * 0.02,
            "norm": jnp.ones(cfg.dim, jnp.bfloat16), "layers": layers}


def prefill_cache(key, cfg):
    """Caches as they stand after the prompts filled the window."""
    shape = (cfg.batch, cfg.kv_heads, cfg.window, cfg.head_dim)
    make = jax.jit(lambda k: jax.random.normal(k, shape, jnp.bfloat16))
    return [(make(jax.random.fold_in(key, 2 * i)), make(jax.random.fold_in(key, 2 * i + 1))) for i in range(cfg.layers)]


def rms(x, w):
    h = x.astype(jnp.float32)
    return (h * jax.lax.rsqrt(jnp.mean(h * h, -1, keepdims=True) + 1e-6)).astype(x.dtype) * w


def rotate(x, pos):
    half = x.shape[-1] // 2
    ang = pos.astype(jnp.float32) * 10000.0 ** (-jnp.arange(half, dtype=jnp.float32) / half)
    a, b = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    c, s = jnp.cos(ang), jnp.sin(ang)
    return jnp.concatenate([a * c - b * s, a * s + b * c], -1).astype(x.dtype)


def attend(q, k, v):
    scores = jnp.einsum("bhgd,bhld->bhgl", q, k, preferred_element_type=jnp.float32) * q.shape[-1] ** -0.5
    probs = jax.nn.softmax(scores, -1).astype(v.dtype)
    return jnp.einsum("bhgl,bhld->bhgd", probs, v)


def layer_step(p, x, kv, pos, cfg):
    b, hd = x.shape[0], cfg.head_dim
    h = rms(x, p["norm1"])
    q = rotate((h @ p["q"]).reshape(b, cfg.kv_heads, -1, hd), pos)
    new = (h @ p["kv"]).reshape(b, 2, cfg.kv_heads, 1, hd)
    slot = pos % cfg.window
    k = jax.lax.dynamic_update_slice(kv[0], rotate(new[:, 0], pos), (0, 0, slot, 0))
    v = jax.lax.dynamic_update_slice(kv[1], new[:, 1], (0, 0, slot, 0))
    x = x + attend(q, k, v).reshape(b, -1) @ p["o"]
    gate, up = jnp.split(rms(x, p["norm2"]) @ p["gate_up"], 2, -1)
    return x + (jax.nn.silu(gate) * up) @ p["down"], (k, v)


def decode_step(params, cache, tok, pos, key, cfg):
    x = params["embed"][tok]
    out = []
    for p, kv in zip(params["layers"], cache):
        x, kv = layer_step(p, x, kv, pos, cfg)
        out.append(kv)
    logits = (rms(x, params["norm"]) @ params["embed"].T).astype(jnp.float32)
    key, sub = jax.random.split(key)
    tok = jax.random.categorical(sub, logits / 0.8)
    return out, tok, pos + 1, key


class Engine:
    def __init__(self, cfg, options):
        self.cfg = cfg
        kp, kc, self.key = jax.random.split(jax.random.key(0), 3)
        self.params = jax.jit(partial(init_params, cfg=cfg))(kp)
        self.cache = prefill_cache(kc, cfg)
        self.tok = jnp.ones(cfg.batch, jnp.int32)
        self.pos = jnp.int32(cfg.window)
        self.decode = options.compile(partial(decode_step, cfg=cfg))
        self.in_flight = deque()
        self.streams = [[] for _ in range(cfg.batch)]

    def step(self, i):
        self.cache, self.tok, self.pos, self.key = self.decode(self.params, self.cache, self.tok, self.pos, self.key)
        self.in_flight.append(self.tok)
        if len(self.in_flight) > self.cfg.lag:
            for stream, t in zip(self.streams, np.asarray(self.in_flight.popleft()).tolist()):
                stream.append(t)

    def wait(self):
        jax.block_until_ready(self.tok)


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


def main():
    args = parse_args(["slow", "fixed"])
    if args.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    engine = Engine(DecoderConfig.for_device(args.device), ENGINES[args.variant])
    default = {"slow": 550, "fixed": 1100}[args.variant]
    drive(args, engine.step, engine.wait, args.steps or (default if args.device == "cuda" else 6), warmup=12)


if __name__ == "__main__":
    main()
