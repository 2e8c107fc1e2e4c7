"""Off-policy value regression: transitions live on the device, every step draws a minibatch and fits an MLP."""
import argparse
import functools
import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

ROWS, FEATURES, BATCH, HIDDEN = 300_000, 24, 1024, 512


def init(key):
    sizes = [FEATURES, HIDDEN, HIDDEN, HIDDEN, 1]
    layers = []
    for i, (m, n) in enumerate(zip(sizes, sizes[1:])):
        w = jax.random.normal(jax.random.fold_in(key, i), (m, n)) * (2.0 / m) ** 0.5
        layers.append({"w": w, "b": jnp.zeros(n)})
    return layers


def predict(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return (x @ params[-1]["w"] + params[-1]["b"])[:, 0]


def loss_fn(params, target, obs, reward, nxt, done):
    goal = reward + 0.99 * (1.0 - done) * predict(target, nxt)
    error = predict(params, obs) - jax.lax.stop_gradient(goal)
    return jnp.mean(jnp.where(jnp.abs(error) < 1.0, 0.5 * error**2, jnp.abs(error) - 0.5))


def draw_distinct(key):
    return jax.random.choice(key, ROWS, (BATCH,), replace=False)


def draw_uniform(key):
    return jax.random.randint(key, (BATCH,), 0, ROWS)


def make_step(draw, lr=3e-4, tau=0.005):
    @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(params, momentum, target, key, store):
        key, sub = jax.random.split(key)
        rows = draw(sub)
        batch = [store[name][rows] for name in ("obs", "reward", "next", "done")]
        loss, grads = jax.value_and_grad(loss_fn)(params, target, *batch)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        params = jax.tree.map(lambda p, m: p - lr * m, params, momentum)
        target = jax.tree.map(lambda t, p: (1 - tau) * t + tau * p, target, params)
        return params, momentum, target, key, loss

    return step


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--steps", type=int, default=100000)
    ap.add_argument("--max-seconds", type=float, default=18)
    a = ap.parse_args()
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((ROWS, FEATURES), dtype=np.float32)
    store = {
        "obs": jnp.asarray(obs),
        "next": jnp.asarray(obs + 0.1 * rng.standard_normal((ROWS, FEATURES), dtype=np.float32)),
        "reward": jnp.asarray(obs[:, 0] * obs[:, 1]),
        "done": jnp.asarray((rng.random(ROWS) < 0.02).astype(np.float32)),
    }
    key = jax.random.key(0)
    params = init(key)
    momentum = jax.tree.map(jnp.zeros_like, params)
    target = jax.tree.map(jnp.copy, params)
    step = make_step(draw_distinct if a.variant == "slow" else draw_uniform)
    times, losses = [], []
    began = time.perf_counter()
    for i in range(a.steps):
        start = time.perf_counter()
        params, momentum, target, key, loss = step(params, momentum, target, key, store)
        losses.append(float(loss))
        times.append(time.perf_counter() - start)
        if time.perf_counter() - began > a.max_seconds:
            break
    t = times[2:] if len(times) > 4 else times
    print(json.dumps({"steps": len(times), "mean_step_ms": 1e3 * statistics.mean(t), "median_step_ms": 1e3 * statistics.median(t),
                      "loss": losses[-1]}))


if __name__ == "__main__":
    main()
