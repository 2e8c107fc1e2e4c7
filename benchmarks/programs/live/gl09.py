"""Pre-training a wide gated residual network on tabular features (JAX, hand-written Adam)."""
import argparse
import json
import os
import statistics
import time
from functools import partial

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.4")

import jax
import jax.numpy as jnp
import numpy as np

PROGRAM = "gl09"
CHOICES = ["healthy"]
DEFAULT_STEPS = 260
WARMUP = 3


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=50.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def run_loop(args, step, finish):
    for _ in range(WARMUP):
        step()
    finish()
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    finish()
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        with jax.profiler.trace(args.trace):
            for _ in range(4):
                step()
            finish()


def init(key, features, width, hidden, depth, classes):
    keys = jax.random.split(key, 5)
    n = jax.random.normal
    return {"inp": n(keys[0], (features, width)) / np.sqrt(features),
            "blocks": {"up": n(keys[1], (depth, width, hidden)) / np.sqrt(width),
                       "down": n(keys[2], (depth, hidden, width)) / np.sqrt(hidden * depth),
                       "scale": jnp.ones((depth, width))},
            "head": n(keys[3], (width, classes)) / np.sqrt(width)}


def rms(x, scale):
    x32 = x.astype(jnp.float32)
    y = x32 * jax.lax.rsqrt(jnp.mean(x32 * x32, axis=-1, keepdims=True) + 1e-6)
    return (y * scale).astype(jnp.bfloat16)


def forward(params, x):
    half = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
    x = x.astype(jnp.bfloat16) @ half["inp"]

    def block(x, p):
        h = jax.nn.relu(rms(x, p["scale"].astype(jnp.float32)) @ p["up"])
        return x + h @ p["down"], None

    x, _ = jax.lax.scan(block, x, half["blocks"])
    return (x @ half["head"]).astype(jnp.float32)


def loss_fn(params, x, y, smoothing):
    logp = jax.nn.log_softmax(forward(params, x))
    hit = jnp.take_along_axis(logp, y[:, None], axis=1)[:, 0]
    return -jnp.mean((1 - smoothing) * hit + smoothing * jnp.mean(logp, axis=1))


def adam(params, grads, mu, nu, count, lr):
    b1, b2 = 0.9, 0.98
    mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, mu, grads)
    nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, nu, grads)
    c1, c2 = 1 - b1 ** count, 1 - b2 ** count
    params = jax.tree.map(lambda p, m, v: p - lr * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), params, mu, nu)
    return params, mu, nu


@partial(jax.jit, donate_argnums=(0, 1, 2))
def update(params, mu, nu, count, lr, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y, 0.05)
    params, mu, nu = adam(params, grads, mu, nu, count, lr)
    return params, mu, nu, loss


class Table:
    """Rows are drawn from a mixture on the host, one batch at a time."""

    def __init__(self, features, classes, batch):
        self.rng = np.random.default_rng(1)
        self.centres = self.rng.standard_normal((classes, features), dtype=np.float32)
        self.classes, self.batch, self.features = classes, batch, features

    def draw(self):
        y = self.rng.integers(0, self.classes, self.batch, dtype=np.int32)
        x = self.rng.standard_normal((self.batch, self.features), dtype=np.float32)
        x += self.centres[y]
        drop = self.rng.integers(0, self.features, self.batch)
        x[np.arange(self.batch), drop] = 0.0
        return x, y


class Session:
    def __init__(self, features, width, hidden, depth, classes, batch):
        self.table = Table(features, classes, batch)
        make = jax.jit(partial(init, features=features, width=width, hidden=hidden, depth=depth, classes=classes))
        self.params = make(jax.random.PRNGKey(0))
        self.mu = jax.tree.map(jnp.zeros_like, self.params)
        self.nu = jax.tree.map(jnp.zeros_like, self.params)
        self.count, self.curve = 0, []
        self.loss = None

    def rate(self):
        return np.float32(2e-4 * min(1.0, self.count / 300))

    def step(self):
        x, y = self.table.draw()
        self.count += 1
        self.params, self.mu, self.nu, self.loss = update(
            self.params, self.mu, self.nu, np.float32(self.count), self.rate(), jnp.asarray(x), jnp.asarray(y))
        if self.count % 25 == 0:
            self.curve.append(float(self.loss))

    def finish(self):
        jax.block_until_ready(self.params)


def main():
    args = parse_args()
    if args.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
        size = dict(features=16, width=32, hidden=64, depth=2, classes=10, batch=32)
    else:
        size = dict(features=256, width=4096, hidden=16384, depth=6, classes=1024, batch=16384)
    session = Session(**size)
    run_loop(args, session.step, session.finish)


if __name__ == "__main__":
    main()
