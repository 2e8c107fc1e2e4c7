"""Masked autoencoding of variable-length sensor windows in JAX, with length buckets."""

import argparse
import functools
import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

DIM, HEADS, LAYERS, FEATS = 256, 4, 3, 24
BUCKETS = (64, 96, 128)


class Windows:
    """Host side: random walks cut into windows, padded up to the nearest bucket."""

    def __init__(self, tokens_per_batch=2048, seed=0):
        self.rng = np.random.default_rng(seed)
        self.walk = np.cumsum(self.rng.standard_normal((200_000, FEATS), dtype=np.float32), 0)
        self.walk = (self.walk - self.walk.mean(0)) / self.walk.std(0)
        self.tokens = tokens_per_batch

    def batch(self):
        bucket = BUCKETS[self.rng.integers(len(BUCKETS))]
        rows = self.tokens // bucket
        lengths = self.rng.integers(bucket - 31, bucket + 1, rows)
        starts = self.rng.integers(0, len(self.walk) - bucket, rows)
        x = self.walk[starts[:, None] + np.arange(bucket)]
        valid = np.arange(bucket)[None] < lengths[:, None]
        hidden = (self.rng.random((rows, bucket)) < 0.4) & valid
        return bucket, x, valid, hidden


def init(key):
    def dense(key, i, o):
        return {"w": jax.random.normal(key, (i, o)) * i ** -0.5, "b": jnp.zeros(o)}

    ks = iter(jax.random.split(key, 4 + 4 * LAYERS))
    layers = [{"qkv": dense(next(ks), DIM, 3 * DIM), "out": dense(next(ks), DIM, DIM),
               "up": dense(next(ks), DIM, 4 * DIM), "down": dense(next(ks), 4 * DIM, DIM),
               "s1": jnp.ones(DIM), "s2": jnp.ones(DIM)} for _ in range(LAYERS)]
    return {"inp": dense(next(ks), FEATS, DIM), "outp": dense(next(ks), DIM, FEATS),
            "mask": jax.random.normal(next(ks), (DIM,)) * 0.02,
            "pos": jax.random.normal(next(ks), (max(BUCKETS), DIM)) * 0.02, "layers": layers}


def lin(p, x):
    return x @ p["w"] + p["b"]


def rms(x, s):
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6) * s


def block(p, x, valid):
    b, t, _ = x.shape
    q, k, v = jnp.split(lin(p["qkv"], rms(x, p["s1"])).reshape(b, t, 3 * HEADS, -1), 3, axis=2)
    logits = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (DIM // HEADS) ** -0.5
    logits = jnp.where(valid[:, None, None, :], logits, -1e9)
    y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(logits), v).reshape(b, t, DIM)
    x = x + lin(p["out"], y)
    return x + lin(p["down"], jax.nn.relu(lin(p["up"], rms(x, p["s2"]))))


def reconstruct(params, x, valid, hidden):
    h = jnp.where(hidden[..., None], params["mask"], lin(params["inp"], x)) + params["pos"][:x.shape[1]]
    for p in params["layers"]:
        h = block(p, h, valid)
    err = jnp.square(lin(params["outp"], h) - x).mean(-1)
    return (err * hidden).sum() / hidden.sum()


@functools.partial(jax.jit, static_argnames=("bucket",), donate_argnames=("params", "m", "v"))
def update(params, m, v, step, x, valid, hidden, *, bucket):
    loss, g = jax.value_and_grad(reconstruct)(params, x, valid, hidden)
    norm = jnp.sqrt(sum(jnp.vdot(a, a) for a in jax.tree.leaves(g)))
    scale = jnp.minimum(1.0, 1.0 / (norm + 1e-6))
    g = jax.tree.map(lambda a: a * scale, g)
    m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
    v = jax.tree.map(lambda a, b: 0.99 * a + 0.01 * b * b, v, g)
    c1, c2 = 1 - 0.9 ** step, 1 - 0.99 ** step
    params = jax.tree.map(lambda p, a, b: p - 1e-3 * (a / c1) / (jnp.sqrt(b / c2) + 1e-8), params, m, v)
    return params, m, v, {"loss": loss, "norm": norm}


def compile_all(params, m, v, data):
    """Every bucket once, so that no step of the run waits for the compiler."""
    ready = {}
    while len(ready) < len(BUCKETS):
        bucket, *arrays = data.batch()
        if bucket not in ready:
            ready[bucket] = update.lower(params, m, v, jnp.float32(1), *arrays, bucket=bucket).compile()
    return ready


def train(steps, max_seconds):
    data = Windows()
    params = init(jax.random.key(0))
    m, v = jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params)
    ready = compile_all(params, m, v, data)
    times, history, begin = [], [], time.perf_counter()
    for step in range(1, steps + 1):
        t0 = time.perf_counter()
        bucket, *arrays = data.batch()
        arrays = [jax.device_put(a) for a in arrays]
        params, m, v, metrics = ready[bucket](params, m, v, jnp.float32(step), *arrays)
        jax.block_until_ready(params)
        history.append({k: float(a) for k, a in metrics.items()})
        times.append(1e3 * (time.perf_counter() - t0))
        if time.perf_counter() - begin > max_seconds:
            break
    return times, history


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
    ap.add_argument("--steps", type=int, default=70)
    ap.add_argument("--max-seconds", type=float, default=60)
    args = ap.parse_args()
    times, history = train(args.steps, args.max_seconds)
    kept = times[3:] or times
    print(json.dumps({"steps": len(times), "mean_step_ms": round(statistics.fmean(kept), 3),
                      "median_step_ms": round(statistics.median(kept), 3),
                      "loss": round(statistics.fmean(h["loss"] for h in history[-20:]), 4)}))


if __name__ == "__main__":
    main()
