"""Policy gradient on a batch of procedurally generated hill worlds, all in JAX."""
import argparse
import json
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

SIZE, VIEW, ACTIONS, LIMIT = 48, 11, 4, 180
MOVES = jnp.array([[0, 1], [1, 0], [0, -1], [-1, 0]])


class World(NamedTuple):
    heights: jax.Array
    where: jax.Array
    energy: jax.Array
    age: jax.Array
    key: jax.Array


def make_world(key):
    key, noise, place = jax.random.split(key, 3)
    ground = jax.random.normal(noise, (SIZE, SIZE))

    def erode(_, g):
        near = (jnp.roll(g, 1, 0) + jnp.roll(g, -1, 0) + jnp.roll(g, 1, 1) + jnp.roll(g, -1, 1)) / 4
        return g + 0.4 * jnp.tanh(near - g)

    ground = lax.fori_loop(0, 10, erode, ground)
    ground = (ground - ground.mean()) / (ground.std() + 1e-6)
    return World(ground, jax.random.randint(place, (2,), 0, SIZE), jnp.float32(1.0), jnp.int32(0), key)


def look(world):
    padded = jnp.pad(world.heights, VIEW // 2, mode="wrap")
    return lax.dynamic_slice(padded, (world.where[0], world.where[1]), (VIEW, VIEW)).reshape(-1)


def move(world, action):
    there = (world.where + MOVES[action]) % SIZE
    gain = world.heights[there[0], there[1]] - world.heights[world.where[0], world.where[1]]
    energy = world.energy - 0.004 - 0.01 * jnp.maximum(gain, 0)
    done = (energy <= 0) | (world.age >= LIMIT)
    return World(world.heights, there, energy, world.age + 1, world.key), gain, done


def renew(world, done):
    return lax.cond(done, lambda w: make_world(w.key), lambda w: w, world)


def init_policy(key, width=256):
    a, b, c = jax.random.split(key, 3)
    return {
        "w1": jax.random.normal(a, (VIEW * VIEW, width)) / VIEW,
        "w2": jax.random.normal(b, (width, width)) / width**0.5,
        "w3": jax.random.normal(c, (width, ACTIONS)) * 0.01,
    }


def logits(params, obs):
    h = jnp.tanh(obs @ params["w1"])
    return jnp.tanh(h @ params["w2"]) @ params["w3"]


def renew_all(variant, worlds, done):
    if variant == "slow":
        return jax.vmap(renew)(worlds, done)
    return lax.map(lambda pair: renew(*pair), (worlds, done))


@partial(jax.jit, static_argnames=("variant", "horizon"))
def train_step(params, worlds, key, variant, horizon=24):
    def one(carry, key):
        worlds = carry
        obs = jax.vmap(look)(worlds)
        action = jax.random.categorical(key, logits(params, obs))
        worlds, reward, done = jax.vmap(move)(worlds, action)
        worlds = renew_all(variant, worlds, done)
        return worlds, (obs, action, reward, done)

    worlds, (obs, action, reward, done) = lax.scan(one, worlds, jax.random.split(key, horizon))

    def back(value, now):
        r, d = now
        value = r + 0.97 * value * (1 - d)
        return value, value

    _, returns = lax.scan(back, jnp.zeros(reward.shape[1]), (reward, done), reverse=True)
    advantage = (returns - returns.mean()) / (returns.std() + 1e-6)

    def loss(params):
        logp = jax.nn.log_softmax(logits(params, obs))
        taken = jnp.take_along_axis(logp, action[..., None], -1)[..., 0]
        entropy = -(jnp.exp(logp) * logp).sum(-1).mean()
        return -(taken * advantage).mean() - 0.01 * entropy

    value, grads = jax.value_and_grad(loss)(params)
    params = jax.tree.map(lambda p, g: p - 0.02 * g, params, grads)
    return params, worlds, value, reward.mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--max-seconds", type=float, default=30)
    args = ap.parse_args()
    key = jax.random.key(0)
    key, a, b, c = jax.random.split(key, 4)
    worlds = jax.jit(jax.vmap(make_world))(jax.random.split(a, 64))
    worlds = worlds._replace(age=jax.random.randint(c, (64,), 0, LIMIT))
    params = init_policy(b)
    times, start = [], time.perf_counter()
    while len(times) < args.steps and time.perf_counter() - start < args.max_seconds:
        t = time.perf_counter()
        key, sub = jax.random.split(key)
        params, worlds, value, reward = train_step(params, worlds, sub, args.variant)
        jax.block_until_ready(value)
        times.append((time.perf_counter() - t) * 1e3)
        if len(times) % 50 == 0:
            print(f"step {len(times)} reward {float(reward):.4f}", flush=True)
    kept = sorted(times[3:])
    print(json.dumps({"mean_ms": round(sum(kept) / len(kept), 2), "median_ms": round(kept[len(kept) // 2], 2),
                      "steps": len(times)}))


if __name__ == "__main__":
    main()
