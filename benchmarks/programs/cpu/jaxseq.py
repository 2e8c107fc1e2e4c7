"""Sentiment GRU in JAX; every batch is padded to its longest review."""

import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

VOCAB, DIM, HIDDEN, BATCH = 5000, 64, 128, 16


def init(key):
    k = jax.random.split(key, 4)
    return {
        "emb": jax.random.normal(k[0], (VOCAB, DIM)) * 0.1,
        "wx": jax.random.normal(k[1], (DIM, 3 * HIDDEN)) * 0.1,
        "wh": jax.random.normal(k[2], (HIDDEN, 3 * HIDDEN)) * 0.1,
        "out": jax.random.normal(k[3], (HIDDEN, 2)) * 0.1,
    }


def gru(params, h, x):
    gx, gh = x @ params["wx"], h @ params["wh"]
    r = jax.nn.sigmoid(gx[:, :HIDDEN] + gh[:, :HIDDEN])
    z = jax.nn.sigmoid(gx[:, HIDDEN : 2 * HIDDEN] + gh[:, HIDDEN : 2 * HIDDEN])
    n = jnp.tanh(gx[:, 2 * HIDDEN :] + r * gh[:, 2 * HIDDEN :])
    return (1 - z) * n + z * h


def forward(params, tokens, mask):
    x = params["emb"][tokens].swapaxes(0, 1)

    def cell(h, inp):
        x_t, m_t = inp
        return jnp.where(m_t[:, None], gru(params, h, x_t), h), None

    h, _ = jax.lax.scan(cell, jnp.zeros((tokens.shape[0], HIDDEN)), (x, mask.T))
    return h @ params["out"]


def loss_fn(params, tokens, mask, labels):
    logp = jax.nn.log_softmax(forward(params, tokens, mask))
    return -jnp.take_along_axis(logp, labels[:, None], axis=1).mean()


@jax.jit
def train_step(params, momentum, tokens, mask, labels):
    loss, grads = jax.value_and_grad(loss_fn)(params, tokens, mask, labels)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    params = jax.tree.map(lambda p, m: p - 0.05 * m, params, momentum)
    return params, momentum, loss


def make_batch(rng):
    lengths = np.clip(rng.lognormal(4.6, 0.5, BATCH).astype(int), 10, 600)
    longest = int(lengths.max())
    tokens = np.zeros((BATCH, longest), dtype=np.int32)
    for row, n in enumerate(lengths):
        tokens[row, :n] = rng.integers(1, VOCAB, n)
    return tokens, tokens > 0, rng.integers(0, 2, BATCH).astype(np.int32)


def main(steps=40):
    rng = np.random.default_rng(0)
    params = init(jax.random.PRNGKey(0))
    momentum = jax.tree.map(jnp.zeros_like, params)
    times = []
    t0 = last = time.perf_counter()
    for step in range(steps):
        tokens, mask, labels = make_batch(rng)
        params, momentum, loss = train_step(params, momentum, tokens, mask, labels)
        loss = float(loss)
        now = time.perf_counter()
        times.append(now - last)
        last = now
        if step % 10 == 0:
            print(f"step {step} loss {loss:.4f}", flush=True)
    print(
        f"median step {statistics.median(times) * 1e3:.2f} ms  total {time.perf_counter() - t0:.2f} s"
    )


if __name__ == "__main__":
    main()
