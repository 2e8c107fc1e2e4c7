"""A small ViT in JAX. Waits for every step, to print the true loss and time."""
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

DIM, LAYERS, HEADS, PATCHES, BATCH = 256, 4, 8, 64, 16


def dense(key, a, b):
    return {"w": jax.random.normal(key, (a, b)) * a**-0.5, "b": jnp.zeros(b)}


def init(key):
    keys = iter(jax.random.split(key, 100))
    return {
        "embed": dense(next(keys), 192, DIM),
        "pos": jax.random.normal(next(keys), (PATCHES, DIM)) * 0.02,
        "blocks": [
            {"qkv": dense(next(keys), DIM, 3 * DIM), "proj": dense(next(keys), DIM, DIM),
             "up": dense(next(keys), DIM, 4 * DIM), "down": dense(next(keys), 4 * DIM, DIM)}
            for _ in range(LAYERS)
        ],
        "head": dense(next(keys), DIM, 10),
    }


def lin(p, x):
    return x @ p["w"] + p["b"]


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def block(p, x):
    b, t, d = x.shape
    q, k, v = jnp.split(lin(p["qkv"], norm(x)).reshape(b, t, HEADS, -1), 3, axis=-1)
    a = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) * (d // HEADS) ** -0.5)
    x = x + lin(p["proj"], jnp.einsum("bhqk,bkhd->bqhd", a, v).reshape(b, t, d))
    return x + lin(p["down"], jax.nn.gelu(lin(p["up"], norm(x))))


def loss_fn(params, x, y):
    h = lin(params["embed"], x) + params["pos"]
    for p in params["blocks"]:
        h = block(p, h)
    logits = lin(params["head"], h.mean(1))
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()


@jax.jit
def train_step(params, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), loss


def main(steps=50):
    rng = np.random.default_rng(0)
    images = rng.standard_normal((512, PATCHES, 192)).astype(np.float32)
    labels = rng.integers(0, 10, 512)
    params = init(jax.random.PRNGKey(0))
    times, losses = [], []
    t0 = last = time.perf_counter()
    for step in range(steps):
        pick = rng.integers(0, 512, BATCH)
        x, y = jnp.asarray(images[pick]), jnp.asarray(labels[pick])
        params, loss = train_step(params, x, y)
        jax.block_until_ready(params)
        losses.append(float(loss))
        now = time.perf_counter()
        times.append(now - last)
        last = now
        print(f"step {step} loss {losses[-1]:.4f} mean {np.mean(losses[-10:]):.4f}", flush=True)
    print(f"median step {statistics.median(times) * 1e3:.2f} ms  total {time.perf_counter() - t0:.2f} s")


if __name__ == "__main__":
    main()
