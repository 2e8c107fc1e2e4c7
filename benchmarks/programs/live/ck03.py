"""Off-policy agent in JAX: act in a batch of environments, store transitions, learn from the store."""
import argparse, functools, json, statistics, time
from typing import NamedTuple
import jax
import jax.numpy as jnp
import numpy as np


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="slow", choices=["slow", "fixed"])
    p.add_argument("--steps", type=int, default=4000)
    p.add_argument("--max-seconds", type=float, default=28)
    p.add_argument("--capacity", type=int, default=60_000)
    return p.parse_args()


class Store(NamedTuple):
    obs: jax.Array
    nxt: jax.Array
    act: jax.Array
    rew: jax.Array
    head: jax.Array
    size: jax.Array


OBS, ACT, ENVS = 96, 8, 32


def empty_store(capacity):
    return Store(jnp.zeros((capacity, OBS)), jnp.zeros((capacity, OBS)), jnp.zeros((capacity, ACT)),
                 jnp.zeros((capacity,)), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def push(store, obs, act, rew, nxt):
    cap = store.obs.shape[0]
    rows = (store.head + jnp.arange(ENVS)) % cap
    return Store(store.obs.at[rows].set(obs), store.nxt.at[rows].set(nxt), store.act.at[rows].set(act),
                 store.rew.at[rows].set(rew), (store.head + ENVS) % cap, jnp.minimum(store.size + ENVS, cap))


def make_push(variant):
    if variant == "fixed":
        return jax.jit(push, donate_argnums=0)
    return jax.jit(push)


@functools.partial(jax.jit, static_argnums=2)
def draw(store, key, batch):
    rows = jax.random.randint(key, (batch,), 0, jnp.maximum(store.size, 1))
    return store.obs[rows], store.act[rows], store.rew[rows], store.nxt[rows]


def init_mlp(key, sizes):
    keys = jax.random.split(key, len(sizes) - 1)
    return [(jax.random.normal(k, (a, b)) / np.sqrt(a), jnp.zeros(b)) for k, a, b in zip(keys, sizes, sizes[1:])]


def mlp(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def critic_loss(critic, target, actor, batch):
    obs, act, rew, nxt = batch
    na = jnp.tanh(mlp(actor, nxt))
    goal = rew + 0.98 * mlp(target, jnp.concatenate([nxt, na], -1))[:, 0]
    q = mlp(critic, jnp.concatenate([obs, act], -1))[:, 0]
    return jnp.mean((q - jax.lax.stop_gradient(goal)) ** 2)


def actor_loss(actor, critic, obs):
    a = jnp.tanh(mlp(actor, obs))
    return -jnp.mean(mlp(critic, jnp.concatenate([obs, a], -1)))


@jax.jit
def learn(agent, batch):
    actor, critic, target = agent
    lc, gc = jax.value_and_grad(critic_loss)(critic, target, actor, batch)
    ga = jax.grad(actor_loss)(actor, critic, batch[0])
    sgd = lambda lr: (lambda p, g: p - lr * jnp.clip(g, -1, 1))
    critic = jax.tree.map(sgd(1e-3), critic, gc)
    actor = jax.tree.map(sgd(1e-4), actor, ga)
    target = jax.tree.map(lambda t, c: 0.995 * t + 0.005 * c, target, critic)
    return (actor, critic, target), lc


@jax.jit
def act(actor, obs, key):
    return jnp.tanh(mlp(actor, obs) + 0.1 * jax.random.normal(key, (obs.shape[0], ACT)))


@jax.jit
def env_step(state, action, drift):
    nxt = 0.95 * state + 0.1 * jnp.tanh(action @ drift)
    return nxt, -jnp.mean(nxt ** 2, -1)


def main():
    args = parse()
    key = jax.random.key(0)
    key, ka, kc, kd, ks = jax.random.split(key, 5)
    critic = init_mlp(kc, [OBS + ACT, 256, 256, 1])
    agent = (init_mlp(ka, [OBS, 256, 256, ACT]), critic, jax.tree.map(jnp.copy, critic))
    drift, state = jax.random.normal(kd, (ACT, OBS)), jax.random.normal(ks, (ENVS, OBS))
    store, add = empty_store(args.capacity), make_push(args.variant)
    ms, begin, loss = [], time.perf_counter(), None
    for step in range(args.steps):
        t = time.perf_counter()
        key, k1, k2 = jax.random.split(key, 3)
        action = act(agent[0], state, k1)
        nxt, rew = env_step(state, action, drift)
        store = add(store, state, action, rew, nxt)
        state = nxt
        agent, loss = learn(agent, draw(store, k2, 512))
        loss.block_until_ready()
        ms.append((time.perf_counter() - t) * 1e3)
        if step % 200 == 199:
            print(f"step {step + 1} loss {float(loss):.5f}", flush=True)
        if time.perf_counter() - begin > args.max_seconds:
            break
    body = ms[5:] or ms
    print(json.dumps({"case": "ck03", "variant": args.variant, "steps": len(ms), "mean_ms": round(statistics.fmean(body), 3),
                      "median_ms": round(statistics.median(body), 3), "cpu_s": round(time.process_time(), 2)}))


if __name__ == "__main__":
    main()
