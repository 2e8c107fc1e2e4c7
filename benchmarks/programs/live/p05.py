"""Forecasting bike-share demand with a residual MLP in JAX; the optimiser is our own."""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

B1, B2, EPS, LR = 0.9, 0.999, 1e-8, 1e-3


def init_block(key, width):
    a, b = jax.random.split(key)
    return {
        "scale": jnp.ones((width,)),
        "shift": jnp.zeros((width,)),
        "up": jax.random.normal(a, (width, 2 * width)) / width**0.5,
        "up_bias": jnp.zeros((2 * width,)),
        "down": jax.random.normal(b, (2 * width, width)) / (8 * width) ** 0.5,
        "down_bias": jnp.zeros((width,)),
    }


def init(key, inputs, width, depth):
    first, last, *rest = jax.random.split(key, depth + 2)
    return {
        "in": jax.random.normal(first, (inputs, width)) / inputs**0.5,
        "blocks": [init_block(k, width) for k in rest],
        "out": jax.random.normal(last, (width, 1)) / width**0.5,
    }


def forward(params, x):
    h = x @ params["in"]
    for block in params["blocks"]:
        n = (h - h.mean(-1, keepdims=True)) / (h.std(-1, keepdims=True) + 1e-5)
        n = n * block["scale"] + block["shift"]
        h = h + jax.nn.gelu(n @ block["up"] + block["up_bias"]) @ block["down"] + block["down_bias"]
    return (h @ params["out"])[:, 0]


def loss_fn(params, x, y):
    return jnp.mean(jnp.square(forward(params, x) - y))


def adam(params, grads, m, v, t):
    m = jax.tree.map(lambda a, g: B1 * a + (1 - B1) * g, m, grads)
    v = jax.tree.map(lambda a, g: B2 * a + (1 - B2) * g * g, v, grads)

    def move(p, a, b):
        return p - LR * (a / (1 - B1**t)) / (jnp.sqrt(b / (1 - B2**t)) + EPS)

    return jax.tree.map(move, params, m, v), m, v


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--steps", type=int, default=300)
    args = ap.parse_args()
    jax.config.update("jax_platforms", args.device)

    inputs, width, depth, batch = 24, 96, 10, 128
    params = init(jax.random.key(0), inputs, width, depth)
    m = jax.tree.map(jnp.zeros_like, params)
    v = jax.tree.map(jnp.zeros_like, params)
    value_and_grad = jax.jit(jax.value_and_grad(loss_fn))
    update = adam if args.variant == "slow" else jax.jit(adam)

    rng = np.random.default_rng(0)
    hours = rng.normal(size=(20000, inputs)).astype(np.float32)
    demand = np.sin(hours[:, 0]) + 0.3 * hours[:, 1] * hours[:, 2]

    times = []
    for step in range(1, args.steps + 1):
        start = time.perf_counter()
        rows = rng.integers(0, len(hours), batch)
        loss, grads = value_and_grad(params, hours[rows], demand[rows])
        params, m, v = update(params, grads, m, v, np.float32(step))
        jax.block_until_ready(params)
        times.append(time.perf_counter() - start)
        if step % 100 == 0:
            print(f"step {step} loss {float(loss):.4f}", flush=True)

    half = times[len(times) // 2 :]
    print(f"step_ms={1000 * sum(half) / len(half):.3f}")


if __name__ == "__main__":
    main()
