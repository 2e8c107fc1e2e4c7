"""Trains a wide residual network on tabular blocks with JAX; evaluates every tenth step."""
import argparse
import json
import functools
import os
import statistics
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
if "cpu" in sys.argv:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

PROGRAM = "gc12"
CHOICES = ["healthy"]
DEFAULT_STEPS = 400
DEFAULT_SECONDS = 50.0
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=DEFAULT_SECONDS)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def run_loop(args, settle, step):
    for _ in range(WARMUP):
        step()
    settle()
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    settle()
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        with jax.profiler.trace(args.trace):
            for _ in range(4):
                step()
            settle()


def init_params(key, features, dim, hidden, depth, outputs):
    def dense(key, i, o):
        return {"w": jax.random.normal(key, (i, o), jnp.float32) / i ** 0.5, "b": jnp.zeros((o,), jnp.float32)}
    keys = jax.random.split(key, 2 * depth + 2)
    blocks = [{"scale": jnp.ones((dim,)), "up": dense(keys[2 * i], dim, hidden),
               "down": dense(keys[2 * i + 1], hidden, dim)} for i in range(depth)]
    return {"stem": dense(keys[-2], features, dim), "blocks": blocks, "head": dense(keys[-1], dim, outputs)}


def apply_dense(layer, x):
    return x @ layer["w"].astype(x.dtype) + layer["b"].astype(x.dtype)


def rms(x, scale):
    y = x.astype(jnp.float32)
    y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * scale
    return y.astype(x.dtype)


def forward(params, x):
    x = apply_dense(params["stem"], x.astype(jnp.bfloat16))
    for block in params["blocks"]:
        h = apply_dense(block["up"], rms(x, block["scale"]))
        x = x + apply_dense(block["down"], jax.nn.gelu(h))
    return apply_dense(params["head"], x).astype(jnp.float32)


def loss_fn(params, x, y):
    logits = forward(params, x)
    picked = jnp.take_along_axis(logits, y[:, None], 1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)


def adam_init(params):
    zeros = lambda: jax.tree.map(jnp.zeros_like, params)
    return {"m": zeros(), "v": zeros(), "t": jnp.zeros((), jnp.int32)}


def adam(params, grads, state, lr):
    t = state["t"] + 1
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    clip = jnp.minimum(1.0, 1.0 / (norm + 1e-6))
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g * clip, state["m"], grads)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * (g * clip) ** 2, state["v"], grads)
    a, b = 1 - 0.9 ** t.astype(jnp.float32), 1 - 0.99 ** t.astype(jnp.float32)
    new = jax.tree.map(lambda p, m, v: p - lr * (m / a / (jnp.sqrt(v / b) + 1e-8) + 0.01 * p), params, m, v)
    return new, {"m": m, "v": v, "t": t}, norm


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, state, x, y, lr):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    params, state, norm = adam(params, grads, state, lr)
    return params, state, loss, norm


@jax.jit
def evaluate(params, x, y):
    return jnp.mean(jnp.argmax(forward(params, x), -1) == y)


class Tables:
    """Blocks of rows on the host; the next block is placed while the last step runs."""

    def __init__(self, blocks, rows, features, outputs):
        rng = np.random.default_rng(3)
        self.x = [rng.standard_normal((rows, features), dtype=np.float32) for _ in range(blocks)]
        self.y = [rng.integers(0, outputs, rows).astype(np.int32) for _ in range(blocks)]
        self.at = 0
        self.ready = self.place()

    def place(self):
        i = self.at % len(self.x)
        self.at += 1
        return jax.device_put(self.x[i]), jax.device_put(self.y[i])

    def take(self):
        return self.ready

    def refill(self):
        self.ready = self.place()


class Experiment:
    def __init__(self, params, tables, held_out):
        self.params, self.state = params, jax.jit(adam_init)(params)
        self.tables, self.held_out = tables, held_out
        self.count, self.history, self.scores = 0, [], []

    def rate(self):
        return np.float32(1e-4 * min(1.0, (self.count + 1) / 50))

    def step(self):
        x, y = self.tables.take()
        self.params, self.state, loss, norm = train_step(self.params, self.state, x, y, self.rate())
        self.tables.refill()
        self.history.append((float(loss), float(norm)))
        self.count += 1
        if self.count % 10 == 0:
            self.scores.append(float(evaluate(self.params, *self.held_out)))


def main():
    args = parse_args()
    big = args.device == "cuda"
    features, dim, hidden, depth, outputs, rows, blocks = \
        (256, 4096, 16384, 3, 1000, 16384, 6) if big else (16, 64, 128, 2, 10, 64, 3)
    make = functools.partial(init_params, features=features, dim=dim, hidden=hidden, depth=depth, outputs=outputs)
    params = jax.jit(make)(jax.random.PRNGKey(0))
    tables = Tables(blocks, rows, features, outputs)
    rng = np.random.default_rng(8)
    held_out = (jax.device_put(rng.standard_normal((rows // 4, features), dtype=np.float32)),
                jax.device_put(rng.integers(0, outputs, rows // 4).astype(np.int32)))
    experiment = Experiment(params, tables, held_out)
    run_loop(args, lambda: jax.block_until_ready(experiment.params), experiment.step)


if __name__ == "__main__":
    main()
