"""Batched greedy continuation of many chats with a small decoder in JAX."""
import argparse
import json
import os
import statistics
import time
from functools import partial

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.40")
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=false")

import jax
import jax.numpy as jnp
import numpy as np

PROGRAM = "ga04"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1000
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


class Shape:
    def __init__(self, small):
        self.width, self.heads, self.kv_heads, self.head_dim = (64, 4, 2, 16) if small else (2048, 16, 8, 128)
        self.ff, self.layers, self.vocab = (128, 2, 256) if small else (5632, 6, 32000)
        self.batch, self.window, self.prompt = (2, 64, 16) if small else (32, 4096, 1024)
        self.dtype = jnp.float32 if small else jnp.bfloat16


def init_weights(shape, key):
    def dense(key, fan_in, fan_out):
        return (jax.random.normal(key, (fan_in, fan_out), jnp.float32) * fan_in ** -0.5).astype(shape.dtype)

    q_out, kv_out = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    keys = iter(jax.random.split(key, 2 + 6 * shape.layers))
    layers = []
    for _ in range(shape.layers):
        layers.append({
            "q": dense(next(keys), shape.width, q_out),
            "kv": dense(next(keys), shape.width, 2 * kv_out),
            "o": dense(next(keys), q_out, shape.width),
            "gate": dense(next(keys), shape.width, shape.ff),
            "up": dense(next(keys), shape.width, shape.ff),
            "down": dense(next(keys), shape.ff, shape.width),
            "norm1": jnp.ones(shape.width, shape.dtype),
            "norm2": jnp.ones(shape.width, shape.dtype),
        })
    return {"embed": dense(next(keys), shape.vocab, shape.width) * shape.width ** 0.5 * 0.02,
            "head": dense(next(keys), shape.width, shape.vocab), "layers": layers}


def empty_memory(shape):
    size = (shape.batch, shape.kv_heads, shape.window, shape.head_dim)
    return [{"k": jnp.zeros(size, shape.dtype), "v": jnp.zeros(size, shape.dtype)} for _ in range(shape.layers)]


def rms_norm(x, scale):
    var = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
    return (x * jax.lax.rsqrt(var + 1e-6)).astype(x.dtype) * scale


def rotate(x, position):
    half = x.shape[-1] // 2
    freq = 10000.0 ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = position.astype(jnp.float32) * freq
    a, b = x[..., :half], x[..., half:]
    cos, sin = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attend(shape, layer, memory, x, position):
    b = x.shape[0]
    group = shape.heads // shape.kv_heads
    q = rotate((x @ layer["q"]).reshape(b, shape.kv_heads, group, shape.head_dim), position)
    kv = (x @ layer["kv"]).reshape(b, 2, shape.kv_heads, 1, shape.head_dim)
    k_new, v_new = rotate(kv[:, 0], position), kv[:, 1]
    k = jax.lax.dynamic_update_slice(memory["k"], k_new, (0, 0, position, 0))
    v = jax.lax.dynamic_update_slice(memory["v"], v_new, (0, 0, position, 0))
    scores = jnp.einsum("bkgd,bksd->bkgs", q, k).astype(jnp.float32) * shape.head_dim ** -0.5
    visible = jnp.arange(shape.window) <= position
    weights = jax.nn.softmax(jnp.where(visible, scores, -1e30), axis=-1).astype(x.dtype)
    out = jnp.einsum("bkgs,bksd->bkgd", weights, v).reshape(b, -1)
    return out @ layer["o"], {"k": k, "v": v}


def advance(shape, weights, memory, tokens, position):
    """One token for every chat; returns the next tokens and the updated memory."""
    x = weights["embed"][tokens]
    updated = []
    for layer, past in zip(weights["layers"], memory):
        y, past = attend(shape, layer, past, rms_norm(x, layer["norm1"]), position)
        x = x + y
        h = rms_norm(x, layer["norm2"])
        x = x + (jax.nn.silu(h @ layer["gate"]) * (h @ layer["up"])) @ layer["down"]
        updated.append(past)
    logits = (x @ weights["head"]).astype(jnp.float32)
    return jnp.argmax(logits, axis=-1).astype(jnp.int32), updated, position + 1


class Server:
    def __init__(self, shape, variant, chunk=8):
        self.shape, self.chunk = shape, chunk
        self.weights = jax.jit(partial(init_weights, shape))(jax.random.key(0))
        self.memory = empty_memory(shape)
        self.tokens = jnp.arange(shape.batch, dtype=jnp.int32)
        self.position = jnp.int32(shape.prompt)
        self.filled = shape.prompt
        self.transcript = [[] for _ in range(shape.batch)]
        options = {"donate_argnums": (1,)} if variant == "fixed" else {}
        self.advance = jax.jit(partial(advance, shape), **options)

    def restart(self):
        self.filled = self.shape.prompt
        self.position = jnp.int32(self.shape.prompt)
        for lines in self.transcript:
            lines.clear()

    def reply_chunk(self):
        if self.filled + self.chunk > self.shape.window:
            self.restart()
        produced = []
        for _ in range(self.chunk):
            self.tokens, self.memory, self.position = self.advance(self.weights, self.memory, self.tokens,
                                                                   self.position)
            produced.append(self.tokens)
        self.filled += self.chunk
        for row in map(np.asarray, produced):
            for lines, token in zip(self.transcript, row.tolist()):
                lines.append(token)


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
    args = parse_args()
    jax.config.update("jax_platforms", args.device)
    server = Server(Shape(small=args.device == "cpu"), args.variant)
    run_loop(args, server.reply_chunk)


if __name__ == "__main__":
    main()
