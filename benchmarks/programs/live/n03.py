"""Q-learning of a pole-like toy world in JAX with a replay memory."""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=700)
args = parser.parse_args()

SEEN, MOVES, WORLDS, ROOM, BATCH, WIDTH = 24, 6, 16, 120_000, 256, 256


class DeviceMemory:
    """Transitions kept as JAX arrays."""

    def __init__(self):
        self.seen = jnp.zeros((ROOM, SEEN))
        self.after = jnp.zeros((ROOM, SEEN))
        self.move = jnp.zeros(ROOM, jnp.int32)
        self.gain = jnp.zeros(ROOM)

    def add(self, at, seen, move, gain, after):
        self.seen = self.seen.at[at].set(seen)
        self.after = self.after.at[at].set(after)
        self.move = self.move.at[at].set(move)
        self.gain = self.gain.at[at].set(gain)

    def take(self, rows):
        return self.seen[rows], self.move[rows], self.gain[rows], self.after[rows]


class HostMemory:
    """Transitions kept as NumPy arrays."""

    def __init__(self):
        self.seen = np.zeros((ROOM, SEEN), np.float32)
        self.after = np.zeros((ROOM, SEEN), np.float32)
        self.move = np.zeros(ROOM, np.int32)
        self.gain = np.zeros(ROOM, np.float32)

    def add(self, at, seen, move, gain, after):
        self.seen[at], self.move[at], self.gain[at], self.after[at] = seen, move, gain, after

    def take(self, rows):
        return self.seen[rows], self.move[rows], self.gain[rows], self.after[rows]


def layers(key):
    sizes = [SEEN, WIDTH, WIDTH, MOVES]
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(k, (i, o)) / np.sqrt(i), jnp.zeros(o))
        for k, i, o in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def values(weights, x):
    for matrix, bias in weights[:-1]:
        x = jax.nn.relu(x @ matrix + bias)
    return x @ weights[-1][0] + weights[-1][1]


@jax.jit
def act(weights, x):
    return values(weights, x).argmax(1)


@jax.jit
def learn(weights, target, batch):
    seen, move, gain, after = batch

    def error(w):
        now = jnp.take_along_axis(values(w, seen), move[:, None], 1)[:, 0]
        wanted = gain + 0.97 * values(target, after).max(1)
        return jnp.mean((now - jax.lax.stop_gradient(wanted)) ** 2)

    loss, slope = jax.value_and_grad(error)(weights)
    return jax.tree.map(lambda w, s: w - 1e-3 * s, weights, slope), loss


class Worlds:
    def __init__(self):
        self.random = np.random.default_rng(0)
        self.mix = self.random.standard_normal((SEEN, SEEN)).astype(np.float32) * 0.15
        self.push = self.random.standard_normal((MOVES, SEEN)).astype(np.float32)
        self.now = self.random.standard_normal((WORLDS, SEEN)).astype(np.float32)

    def step(self, move):
        before = self.now
        self.now = np.tanh(before @ self.mix + self.push[move])
        return before, -np.abs(self.now).mean(1), self.now


def main():
    jax.config.update("jax_platforms", args.device)
    weights = target = layers(jax.random.PRNGKey(0))
    memory = DeviceMemory() if args.variant == "slow" else HostMemory()
    worlds, ends = Worlds(), []
    for step in range(args.steps):
        move = np.asarray(act(weights, worlds.now))
        before, gain, after = worlds.step(move)
        memory.add((step * WORLDS + np.arange(WORLDS)) % ROOM, before, move, gain, after)
        rows = worlds.random.integers(0, min((step + 1) * WORLDS, ROOM), BATCH)
        for _ in range(2):
            weights, loss = learn(weights, target, memory.take(rows))
        if step % 100 == 0:
            target = weights
            print(f"step {step} loss {float(loss):.4f}", flush=True)
        jax.block_until_ready(weights)
        ends.append(time.perf_counter())
    half = ends[len(ends) // 2 :]
    print(f"step_ms={1e3 * (half[-1] - half[0]) / (len(half) - 1):.3f}")


main()
