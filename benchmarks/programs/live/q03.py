"""Policy search on many small warehouses at once in JAX; finished warehouses are laid out anew."""

import argparse
import time

import jax
import jax.numpy as jnp

parser = argparse.ArgumentParser()
parser.add_argument("--variant", choices=["slow", "fixed"], default="slow")
parser.add_argument("--device", default="cpu")
parser.add_argument("--steps", type=int, default=300)
args = parser.parse_args()

ENVS, SIZE, LIMIT, HIDDEN = 256, 24, 200, 256


def layout(key):
    """A fresh field of travel costs: noise, smoothed until neighbours agree."""
    field = jax.random.uniform(key, (SIZE, SIZE))

    def smooth(_, f):
        return 0.25 * (jnp.roll(f, 1, 0) + jnp.roll(f, -1, 0) + jnp.roll(f, 1, 1) + jnp.roll(f, -1, 1))

    field = jax.lax.fori_loop(0, 60, smooth, field)
    return {"field": field, "pos": jnp.zeros(2, jnp.int32), "age": jnp.int32(0)}


def move(env, action):
    delta = jnp.array([[1, 0], [-1, 0], [0, 1], [0, -1]])[action]
    pos = jnp.clip(env["pos"] + delta, 0, SIZE - 1)
    reward = -env["field"][pos[0], pos[1]]
    return {"field": env["field"], "pos": pos, "age": env["age"] + 1}, reward


def step_one(key, env, action):
    """One warehouse: a move, and a new layout only if its day is over."""
    env, reward = move(env, action)
    env = jax.lax.cond(env["age"] >= LIMIT, lambda: layout(key), lambda: env)
    return env, reward


def step_all(keys, envs, actions):
    if args.variant == "slow":
        return jax.vmap(step_one)(keys, envs, actions)
    envs, rewards = jax.vmap(move)(envs, actions)
    over = envs["age"] >= LIMIT

    def renew():
        fresh = jax.vmap(layout)(keys)
        return jax.tree.map(
            lambda f, e: jnp.where(over.reshape((-1,) + (1,) * (e.ndim - 1)), f, e), fresh, envs
        )

    return jax.lax.cond(over.any(), renew, lambda: envs), rewards


def logits(params, envs):
    x = envs["field"].reshape(ENVS, -1)
    x = jnp.tanh(x @ params["w1"] + envs["pos"] @ params["wp"])
    return x @ params["w2"]


@jax.jit
def train_step(params, envs, key):
    k_act, k_env = jax.random.split(key)
    actions = jax.random.categorical(k_act, logits(params, envs))
    new_envs, rewards = step_all(jax.random.split(k_env, ENVS), envs, actions)

    def loss_fn(p):
        logp = jax.nn.log_softmax(logits(p, envs))
        return -jnp.mean(logp[jnp.arange(ENVS), actions] * (rewards - rewards.mean()))

    loss, grads = jax.value_and_grad(loss_fn)(params)
    params = jax.tree.map(lambda p, g: p - 0.05 * g, params, grads)
    return params, new_envs, loss


def main():
    key = jax.random.key(0)
    k1, k2, k3, k4, key = jax.random.split(key, 5)
    params = {
        "w1": 0.05 * jax.random.normal(k1, (SIZE * SIZE, HIDDEN)),
        "wp": 0.05 * jax.random.normal(k2, (2, HIDDEN)),
        "w2": 0.05 * jax.random.normal(k3, (HIDDEN, 4)),
    }
    envs = jax.vmap(layout)(jax.random.split(k4, ENVS))
    times = []
    for step in range(args.steps):
        start = time.perf_counter()
        key, sub = jax.random.split(key)
        params, envs, loss = train_step(params, envs, sub)
        loss.block_until_ready()
        times.append(time.perf_counter() - start)
        if step % 200 == 0:
            print(f"step {step} loss {float(loss):.4f}")
    half = times[len(times) // 2 :]
    print(f"step_ms={1000 * sum(half) / len(half):.3f}")


main()
