"""Off-policy control of a batch of simulated point robots: collect, store, sample, update (pure JAX)."""

import argparse
import json
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

OBS, ACT, ENVS = 96, 9, 64


class Storage(NamedTuple):
    obs: jax.Array
    nxt: jax.Array
    act: jax.Array
    rew: jax.Array
    end: jax.Array


class Batch(NamedTuple):
    obs: jax.Array
    nxt: jax.Array
    act: jax.Array
    rew: jax.Array
    end: jax.Array


def init_mlp(key, sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        key, sub = jax.random.split(key)
        layers.append({"w": jax.random.normal(sub, (a, b)) * (2.0 / a) ** 0.5, "b": jnp.zeros(b)})
    return layers


def apply_mlp(layers, x):
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ layers[-1]["w"] + layers[-1]["b"]


def make_world(key):
    k1, k2, k3 = jax.random.split(key, 3)
    return {
        "drift": jax.random.normal(k1, (OBS, OBS)) * 0.5 / OBS**0.5,
        "push": jax.random.normal(k2, (ACT, OBS)) * 0.3,
        "goal": jax.random.normal(k3, (OBS,)),
    }


@jax.jit
def env_step(world, obs, action, key):
    noise = 0.05 * jax.random.normal(key, obs.shape)
    nxt = jnp.tanh(obs @ world["drift"] + world["push"][action] + noise)
    reward = -jnp.mean((nxt - world["goal"]) ** 2, axis=-1)
    end = jnp.linalg.norm(nxt, axis=-1) > 0.9 * OBS**0.5
    return nxt, reward, end.astype(jnp.float32)


@jax.jit
def act(params, obs, key, eps):
    greedy = jnp.argmax(apply_mlp(params, obs), axis=-1)
    k1, k2 = jax.random.split(key)
    rand = jax.random.randint(k1, greedy.shape, 0, ACT)
    return jnp.where(jax.random.uniform(k2, greedy.shape) < eps, rand, greedy)


def td_loss(params, target, batch, gamma):
    q = jnp.take_along_axis(apply_mlp(params, batch.obs), batch.act[:, None], axis=1)[:, 0]
    best = jnp.argmax(apply_mlp(params, batch.nxt), axis=1)
    boot = jnp.take_along_axis(apply_mlp(target, batch.nxt), best[:, None], axis=1)[:, 0]
    goal = batch.rew + gamma * (1.0 - batch.end) * jax.lax.stop_gradient(boot)
    return jnp.mean(
        jnp.where(jnp.abs(q - goal) < 1, 0.5 * (q - goal) ** 2, jnp.abs(q - goal) - 0.5)
    )


@partial(jax.jit, static_argnames=("gamma", "lr", "tau"))
def update(params, target, moments, batch, count, gamma=0.98, lr=3e-4, tau=0.01):
    loss, grads = jax.value_and_grad(td_loss)(params, target, batch, gamma)
    m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, moments[0], grads)
    v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, moments[1], grads)
    c1, c2 = 1 - 0.9**count, 1 - 0.999**count
    params = jax.tree.map(
        lambda p, a, b: p - lr * (a / c1) / (jnp.sqrt(b / c2) + 1e-8), params, m, v
    )
    target = jax.tree.map(lambda t, p: (1 - tau) * t + tau * p, target, params)
    return params, target, (m, v), loss


def put(store, cursor, obs, nxt, action, rew, end):
    rows = (cursor + jnp.arange(ENVS)) % store.rew.shape[0]
    return Storage(
        store.obs.at[rows].set(obs),
        store.nxt.at[rows].set(nxt),
        store.act.at[rows].set(action),
        store.rew.at[rows].set(rew),
        store.end.at[rows].set(end),
    )


def take(store, key, filled, size):
    rows = jax.random.randint(key, (size,), 0, filled)
    return Batch(*(field[rows] for field in store))


class Replay:
    def __init__(self, capacity, **jit_options):
        self.capacity, self.cursor, self.filled = capacity, 0, 0
        self.store = Storage(
            jnp.zeros((capacity, OBS)),
            jnp.zeros((capacity, OBS)),
            jnp.zeros(capacity, jnp.int32),
            jnp.zeros(capacity),
            jnp.zeros(capacity),
        )
        self._put = jax.jit(put, **jit_options)
        self._take = jax.jit(take, static_argnames="size")

    def add(self, *transition):
        self.store = self._put(self.store, self.cursor, *transition)
        self.cursor = (self.cursor + ENVS) % self.capacity
        self.filled = min(self.filled + ENVS, self.capacity)

    def sample(self, key, size):
        return self._take(self.store, key, self.filled, size)


def reset_done(obs, end, key):
    fresh = 0.1 * jax.random.normal(key, obs.shape)
    return jnp.where(end[:, None] > 0, fresh, obs)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="slow", choices=["slow", "fixed", "healthy"])
    ap.add_argument("--steps", type=int, default=280)
    ap.add_argument("--max-seconds", type=float, default=60)
    ap.add_argument("--capacity", type=int, default=100_000)
    ap.add_argument("--batch", type=int, default=768)
    args = ap.parse_args()

    key = jax.random.PRNGKey(7)
    key, kw, kp, ko = jax.random.split(key, 4)
    world = make_world(kw)
    params = init_mlp(kp, [OBS, 512, 512, ACT])
    target = jax.tree.map(jnp.copy, params)
    moments = (jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params))
    replay = (
        Replay(args.capacity) if args.variant == "slow" else Replay(args.capacity, donate_argnums=0)
    )
    obs = 0.1 * jax.random.normal(ko, (ENVS, OBS))
    reset = jax.jit(reset_done)

    times, losses, began = [], [], time.perf_counter()
    for step in range(args.steps):
        t0 = time.perf_counter()
        key, ka, ke, ks, kr = jax.random.split(key, 5)
        eps = max(0.05, 1.0 - step / 150)
        action = act(params, obs, ka, eps)
        nxt, rew, end = env_step(world, obs, action, ke)
        replay.add(obs, nxt, action, rew, end)
        obs = reset(nxt, end, kr)
        batch = replay.sample(ks, args.batch)
        params, target, moments, loss = update(
            params, target, moments, batch, jnp.float32(step + 1)
        )
        losses.append(float(loss))
        if step >= 3:
            times.append(1e3 * (time.perf_counter() - t0))
        if step % 50 == 0:
            print(
                f"step {step} loss {losses[-1]:.4f} reward {float(rew.mean()):.3f} eps {eps:.2f}",
                flush=True,
            )
        if time.perf_counter() - began > args.max_seconds:
            break
    print(
        json.dumps(
            {
                "variant": args.variant,
                "steps": len(times),
                "loss": round(float(np.mean(losses[-20:])), 4),
                "mean_ms": round(float(np.mean(times)), 3),
                "median_ms": round(float(np.median(times)), 3),
            }
        )
    )


if __name__ == "__main__":
    main()
