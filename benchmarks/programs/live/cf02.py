"""Q-learning from a replay memory, vectorised environments."""
import argparse
import json
import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

ap = argparse.ArgumentParser()
ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
ap.add_argument("--steps", type=int, default=100000)
ap.add_argument("--max-seconds", type=float, default=28)
args = ap.parse_args()

OBS, ACTIONS, ENVS, CAPACITY, BATCH = 64, 8, 32, 80_000, 384


class Memory(NamedTuple):
    obs: jax.Array
    nxt: jax.Array
    act: jax.Array
    rew: jax.Array
    head: jax.Array


class Envs:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.standard_normal((ENVS, OBS), dtype=np.float32)
        self.drift = self.rng.standard_normal((ACTIONS, OBS), dtype=np.float32) * 0.1

    def step(self, act):
        noise = self.rng.standard_normal((ENVS, OBS), dtype=np.float32) * 0.05
        nxt = 0.97 * self.state + self.drift[act] + noise
        rew = -np.abs(nxt).mean(1)
        obs, self.state = self.state, nxt
        return obs, nxt, rew.astype(np.float32)


def init(key):
    sizes = [OBS, 256, 256, ACTIONS]
    keys = jax.random.split(key, 3)
    return [(jax.random.normal(k, (i, o)) / np.sqrt(i), jnp.zeros(o)) for k, i, o in zip(keys, sizes, sizes[1:])]


def q_values(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


@jax.jit
def policy(params, obs):
    return q_values(params, obs).argmax(-1)


compiled = partial(jax.jit, donate_argnums=0) if args.variant == "fixed" else jax.jit


@compiled
def remember(memory, obs, nxt, act, rew):
    at = (memory.head + jnp.arange(ENVS)) % CAPACITY
    return Memory(
        memory.obs.at[at].set(obs),
        memory.nxt.at[at].set(nxt),
        memory.act.at[at].set(act),
        memory.rew.at[at].set(rew),
        memory.head + ENVS,
    )


@jax.jit
def learn(params, target, memory, key):
    at = jax.random.randint(key, (BATCH,), 0, jnp.minimum(memory.head, CAPACITY))
    obs, nxt, act, rew = memory.obs[at], memory.nxt[at], memory.act[at], memory.rew[at]

    def loss_of(p):
        q = jnp.take_along_axis(q_values(p, obs), act[:, None], 1)[:, 0]
        goal = rew + 0.98 * q_values(target, nxt).max(-1)
        return jnp.mean(jnp.square(q - jax.lax.stop_gradient(goal)))

    loss, grads = jax.value_and_grad(loss_of)(params)
    params = jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads)
    return params, loss


key = jax.random.key(0)
params = init(key)
target = params
memory = Memory(
    jnp.zeros((CAPACITY, OBS)), jnp.zeros((CAPACITY, OBS)),
    jnp.zeros(CAPACITY, jnp.int32), jnp.zeros(CAPACITY), jnp.zeros((), jnp.int32),
)
envs = Envs(0)
explore = np.random.default_rng(1)
times, losses, begin = [], [], time.perf_counter()
for step in range(args.steps):
    if time.perf_counter() - begin > args.max_seconds:
        break
    t0 = time.perf_counter()
    act = np.asarray(policy(params, envs.state))
    act = np.where(explore.random(ENVS) < 0.1, explore.integers(0, ACTIONS, ENVS), act).astype(np.int32)
    obs, nxt, rew = envs.step(act)
    memory = remember(memory, obs, nxt, act, rew)
    key, sub = jax.random.split(key)
    params, loss = learn(params, target, memory, sub)
    if step % 200 == 0:
        target = params
        losses.append(float(loss))
    loss.block_until_ready()
    times.append((time.perf_counter() - t0) * 1e3)
t = sorted(times[5:])
print(json.dumps({"steps": len(times), "mean_ms": sum(t) / len(t), "median_ms": t[len(t) // 2]}))
