"""Embedding of documents with a wide bidirectional encoder (flax), two length buckets, vectors delivered to the host."""
import argparse
import json
import statistics
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np


class Block(nn.Module):
    heads: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x, seen):
        d = x.shape[-1]
        opts = dict(dtype=self.dtype, param_dtype=self.dtype, use_bias=False)
        h = nn.RMSNorm(dtype=self.dtype, param_dtype=self.dtype)(x)
        qkv = nn.DenseGeneral((3, self.heads, d // self.heads), **opts)(h)
        att = jax.nn.dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], mask=seen[:, None, None, :])
        x = x + nn.DenseGeneral(d, axis=(-2, -1), **opts)(att)
        h = nn.RMSNorm(dtype=self.dtype, param_dtype=self.dtype)(x)
        return x + nn.Dense(d, **opts)(nn.gelu(nn.Dense(4 * d, **opts)(h)))


class Encoder(nn.Module):
    vocab: int
    dim: int
    depth: int
    heads: int
    dtype: jnp.dtype = jnp.bfloat16

    @nn.compact
    def __call__(self, ids):
        seen = ids > 0
        x = nn.Embed(self.vocab, self.dim, dtype=self.dtype, param_dtype=self.dtype)(ids)
        for _ in range(self.depth):
            x = Block(self.heads, self.dtype)(x, seen)
        x = nn.RMSNorm(dtype=self.dtype, param_dtype=self.dtype)(x)
        w = seen[..., None].astype(jnp.float32)
        mean = (x.astype(jnp.float32) * w).sum(1) / jnp.maximum(w.sum(1), 1)
        return mean / jnp.linalg.norm(mean, axis=-1, keepdims=True)


class Batches:
    """Documents sorted into two buckets with the same number of tokens a batch."""

    def __init__(self, vocab, tokens, lengths, seed=0):
        rng = np.random.default_rng(seed)
        self.ready = []
        for length in lengths:
            for _ in range(4):
                ids = rng.integers(1, vocab, (tokens // length, length), dtype=np.int32)
                for row in ids:
                    row[length - rng.integers(0, length // 16 + 1):] = 0
                self.ready.append(ids)
        rng.shuffle(self.ready)

    def __getitem__(self, i):
        return self.ready[i % len(self.ready)]

    def shapes(self):
        return sorted({b.shape for b in self.ready})


def build(args):
    tiny = args.device == "cpu"
    vocab, dim, depth, heads, tokens, lengths = (
        (100, 32, 2, 2, 64, (16, 8)) if tiny else (50000, 4096, 8, 32, 16384, (128, 64)))
    model = Encoder(vocab, dim, depth, heads)
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, lengths[0]), jnp.int32))
    encode = jax.jit(model.apply)
    batches = Batches(vocab, tokens, lengths)
    for shape in batches.shapes():
        encode(params, jnp.ones(shape, jnp.int32)).block_until_ready()
    run = {"n": 0, "last": None, "store": np.zeros((tokens // min(lengths), dim), np.float32)}

    def deliver():
        if run["last"] is not None:
            vectors = np.asarray(run["last"])
            run["store"][: len(vectors)] = vectors
            run["last"] = None

    def step():
        ids = jax.device_put(batches[run["n"]])
        run["n"] += 1
        vectors = encode(params, ids)
        deliver()
        run["last"] = vectors

    return step, deliver


def measure(program, args, step, drain):
    for _ in range(args.warmup):
        step()
    drain()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step()
        marks.append(time.perf_counter())
        if args.max_seconds and marks[-1] - marks[0] > args.max_seconds:
            break
    drain()
    end = time.perf_counter()
    gaps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": program, "variant": args.variant, "steps": len(gaps),
        "step_ms_mean": round((end - marks[0]) * 1e3 / len(gaps), 3),
        "step_ms_median": round(statistics.median(gaps) * 1e3, 3),
    }), flush=True)
    if args.trace:
        for _ in range(2):
            step()
        drain()
        with jax.profiler.trace(args.trace):
            for i in range(4):
                with jax.profiler.StepTraceAnnotation("step", step_num=i):
                    step()
            drain()


def parse_args(variants, steps, tiny_steps=4, warmup=5):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    args = p.parse_args()
    if args.steps is None:
        args.steps = steps[args.variant] if args.device == "cuda" else tiny_steps
    args.warmup = warmup if args.device == "cuda" else 2
    return args


if __name__ == "__main__":
    args = parse_args(["healthy"], {"healthy": 100}, warmup=8)
    jax.config.update("jax_platforms", args.device)
    step, drain = build(args)
    measure("s12", args, step, drain)
