"""Two-tower retrieval in JAX: users against their item and a set of shared negatives."""
import argparse, json, statistics, time
import numpy as np
import jax
import jax.numpy as jnp

ITEMS, FEATURES, WIDTH, OUT, BATCH, NEGATIVES = 2_500_000, 12, 512, 128, 256, 512


class Catalogue:
    """Item features in memory; draws training batches."""

    def __init__(self, seed, variant):
        self.features = np.random.default_rng(seed).standard_normal((ITEMS, FEATURES), dtype=np.float32)
        self.users = np.random.default_rng(seed + 1).standard_normal((20_000, FEATURES), dtype=np.float32)
        self.rng = np.random.default_rng(seed + 2) if variant == "fixed" else np.random.RandomState(seed + 2)
        self.draw = self.rng.integers if variant == "fixed" else self.rng.randint

    def negatives(self):
        rows = self.rng.choice(ITEMS, size=NEGATIVES, replace=False)
        return self.features[rows]

    def batch(self):
        who = self.draw(0, len(self.users), BATCH)
        bought = self.draw(0, ITEMS, BATCH)
        return self.users[who], self.features[bought], self.negatives()


def init(key):
    sizes = [(FEATURES, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, OUT)]

    def tower(key):
        return [(jax.random.normal(k, s) / np.sqrt(s[0]), jnp.zeros(s[1])) for k, s in zip(jax.random.split(key, len(sizes)), sizes)]

    a, b = jax.random.split(key)
    return {"user": tower(a), "item": tower(b)}


def tower(layers, x):
    for w, b in layers[:-1]:
        x = jax.nn.gelu(x @ w + b)
    w, b = layers[-1]
    x = x @ w + b
    return x / (jnp.linalg.norm(x, axis=-1, keepdims=True) + 1e-6)


def loss_fn(params, users, items, negatives):
    u = tower(params["user"], users)
    both = tower(params["item"], jnp.concatenate([items, negatives]))
    i, n = both[:BATCH], both[BATCH:]
    logits = jnp.concatenate([(u * i).sum(-1, keepdims=True), u @ n.T], axis=1) / 0.05
    return -jax.nn.log_softmax(logits)[:, 0].mean()


def update(params, velocity, users, items, negatives):
    loss, grads = jax.value_and_grad(loss_fn)(params, users, items, negatives)
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
    params = jax.tree.map(lambda p, v: p - 0.01 * v, params, velocity)
    return params, velocity, loss


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--max-seconds", type=float, default=30)
    a = p.parse_args()
    catalogue = Catalogue(0, a.variant)
    params = init(jax.random.key(0))
    velocity = jax.tree.map(jnp.zeros_like, params)
    train_step = jax.jit(update, donate_argnums=(0, 1))
    losses, times, start = [], [], time.perf_counter()
    for step in range(a.steps):
        t = time.perf_counter()
        users, items, negatives = catalogue.batch()
        params, velocity, loss = train_step(params, velocity, users, items, negatives)
        losses.append(float(loss))
        times.append((time.perf_counter() - t) * 1e3)
        if time.perf_counter() - start > a.max_seconds:
            break
    kept = times[3:] or times
    print(json.dumps({"mean_ms": statistics.mean(kept), "median_ms": statistics.median(kept), "steps": len(times), "loss": losses[-1]}))


if __name__ == "__main__":
    main()
