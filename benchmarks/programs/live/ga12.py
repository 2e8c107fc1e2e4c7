"""Surrogate of a flow solver: a deep dense network fitted in JAX, with the loss watched on the host."""
import argparse
import json
import math
import os
import statistics
import time
from functools import partial

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.40")
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=false")

import jax
import jax.numpy as jnp
import numpy as np

PROGRAM = "ga12"
CHOICES = ["healthy"]
DEFAULT_STEPS = 350
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def init(key, inputs, width, depth, outputs, dtype):
    k1, k2, k3 = jax.random.split(key, 3)

    def dense(key, *shape):
        return (jax.random.normal(key, shape, jnp.float32) * (2.0 / shape[-2]) ** 0.5).astype(dtype)

    params = {"first": dense(k1, inputs, width), "last": dense(k3, width, outputs),
              "inner": dense(k2, depth, width, width), "bias": jnp.zeros((depth, width), dtype)}
    return params, jax.tree.map(jnp.zeros_like, params)


def predict(params, x):
    h = jax.nn.relu(x @ params["first"])

    def layer(h, weights):
        w, b = weights
        return jax.nn.relu(h @ w + b), None

    h, _ = jax.lax.scan(layer, h, (params["inner"], params["bias"]))
    return h @ params["last"]


def objective(params, x, y, viscosity):
    out = predict(params, x).astype(jnp.float32)
    err = jnp.square(out - y)
    weight = jnp.where(viscosity > 0.5, 2.0, 1.0)[:, None]
    return jnp.mean(weight * err)


def update(params, momentum, x, y, rate):
    features = x.astype(params["first"].dtype)
    loss, grads = jax.value_and_grad(objective)(params, features, y, x[:, 0])
    momentum = jax.tree.map(lambda m, g: (0.9 * m + g).astype(m.dtype), momentum, grads)
    params = jax.tree.map(lambda p, m: (p - rate * m).astype(p.dtype), params, momentum)
    finite = jnp.isfinite(loss)
    return params, momentum, loss, finite


class Samples:
    """Solver snapshots held in host memory; a batch is the next run of rows."""

    def __init__(self, rows, inputs, outputs):
        rng = np.random.default_rng(4)
        self.x = rng.random((rows, inputs), dtype=np.float32)
        mix = rng.standard_normal((inputs, outputs), dtype=np.float32) * inputs ** -0.5
        self.y = np.sin(self.x @ mix)
        self.cursor = 0

    def take(self, count):
        if self.cursor + count > len(self.x):
            self.cursor = 0
        rows = slice(self.cursor, self.cursor + count)
        self.cursor += count
        return self.x[rows], self.y[rows]


class Fit:
    def __init__(self, small):
        self.inputs, self.outputs, self.dtype = 32, 16, jnp.float32 if small else jnp.bfloat16
        self.batch, width, depth = (64, 64, 3) if small else (24576, 8192, 7)
        start = jax.jit(partial(init, inputs=self.inputs, width=width, depth=depth, outputs=self.outputs,
                                dtype=self.dtype))
        self.params, self.momentum = start(jax.random.key(0))
        self.samples = Samples(8 * self.batch, self.inputs, self.outputs)
        self.update = jax.jit(update, donate_argnums=(0, 1))
        self.history, self.best, self.count = [], math.inf, 0

    def rate(self):
        return 1e-3 * 0.5 * (1 + math.cos(math.pi * (self.count % 1000) / 1000))

    def step(self):
        x, y = self.samples.take(self.batch)
        rate = np.float32(self.rate())
        self.params, self.momentum, loss, finite = self.update(self.params, self.momentum, x, y, rate)
        value = float(loss)
        if not bool(finite):
            raise RuntimeError(f"loss is {value} at step {self.count}")
        self.best = min(self.best, value)
        self.history.append(value)
        self.count += 1


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
    fit = Fit(small=args.device == "cpu")
    run_loop(args, fit.step)


if __name__ == "__main__":
    main()
