"""Compressing spectra with an autoencoder in JAX."""

import argparse
import collections
import json
import time

import jax
import jax.numpy as jnp
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="healthy")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=250)
args = parser.parse_args()

LINES, CODE, BATCH, HIDDEN = 1200, 32, 512, 1024


class Spectra:
    """Sums of a few peaks, mixed anew for each batch."""

    def __init__(self):
        self.random = np.random.default_rng(0)
        axis = np.linspace(0, 1, LINES, dtype=np.float32)
        centres = self.random.random((200, 1), dtype=np.float32)
        self.peaks = np.exp(-((axis - centres) ** 2) / 2e-4)

    def batch(self):
        share = self.random.random((BATCH, 200), dtype=np.float32) ** 8
        return share @ self.peaks


def start(key):
    sizes = [LINES, HIDDEN, CODE, HIDDEN, LINES]
    keys = jax.random.split(key, len(sizes) - 1)
    return {
        f"layer_{at}": {"w": jax.random.normal(k, (i, o)) * i**-0.5, "b": jnp.zeros(o)}
        for at, (k, i, o) in enumerate(zip(keys, sizes[:-1], sizes[1:], strict=True))
    }


def rebuild(weights, x):
    for at in range(len(weights)):
        layer = weights[f"layer_{at}"]
        x = x @ layer["w"] + layer["b"]
        x = jax.nn.gelu(x) if at < len(weights) - 1 else x
    return x


@jax.jit
def update(weights, speed, x):
    loss, slope = jax.value_and_grad(lambda w: jnp.mean((rebuild(w, x) - x) ** 2))(weights)
    speed = jax.tree.map(lambda v, g: 0.9 * v + g, speed, slope)
    return jax.tree.map(lambda w, v: w - 0.01 * v, weights, speed), speed, loss


def main():
    jax.config.update("jax_platforms", args.device)
    spectra = Spectra()
    weights = start(jax.random.PRNGKey(0))
    speed = jax.tree.map(jnp.zeros_like, weights)
    recent, history, ends = collections.deque(maxlen=50), [], []
    for step in range(args.steps):
        x = jnp.asarray(spectra.batch())
        weights, speed, loss = update(weights, speed, x)
        value = float(loss)
        recent.append(value)
        history = [*history, {"step": step, "loss": value}]
        if not np.isfinite(np.asarray(weights["layer_1"]["b"])).all():
            raise FloatingPointError(json.dumps(history[-3:]))
        print(f"step {step} loss {value:.5f} mean {sum(recent) / len(recent):.5f}", flush=True)
        ends.append(time.perf_counter())
    half = ends[len(ends) // 2 :]
    print(f"step_ms={1e3 * (half[-1] - half[0]) / (len(half) - 1):.3f}")


main()
