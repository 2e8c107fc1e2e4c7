"""Double DQN in JAX: vectorised environment, on-device replay memory, target network."""
import argparse
import functools
import json
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

OBS, ACTIONS = 48, 6


def init_net(key, width=256):
    sizes = [OBS, width, width, ACTIONS]
    keys = jax.random.split(key, len(sizes) - 1)
    return [{"w": jax.random.normal(k, (a, b)) * np.sqrt(2 / a), "b": jnp.zeros(b)}
            for k, a, b in zip(keys, sizes[:-1], sizes[1:])]


def q_values(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


@jax.jit
def env_step(state, action, key):
    """A field of coupled oscillators that the agent damps."""
    force = (action[:, None] - (ACTIONS - 1) / 2) * jnp.sin(jnp.arange(OBS) * 0.3)
    noise = jax.random.normal(key, state.shape) * 0.02
    nxt = 0.97 * state + 0.05 * jnp.roll(state, 1, axis=1) - 0.02 * force + noise
    reward = -jnp.mean(nxt ** 2, axis=1)
    done = jnp.abs(nxt).max(axis=1) > 3.0
    return jnp.where(done[:, None], noise, nxt), reward, done


@jax.jit
def act(params, obs, epsilon, key):
    k1, k2 = jax.random.split(key)
    greedy = q_values(params, obs).argmax(1)
    other = jax.random.randint(k1, greedy.shape, 0, ACTIONS)
    return jnp.where(jax.random.uniform(k2, greedy.shape) < epsilon, other, greedy)


def make_memory(capacity):
    return {"obs": jnp.zeros((capacity, OBS)), "next": jnp.zeros((capacity, OBS)),
            "action": jnp.zeros(capacity, jnp.int32), "reward": jnp.zeros(capacity),
            "done": jnp.zeros(capacity, bool)}


def remember(memory, rows, at):
    return {name: jax.lax.dynamic_update_slice_in_dim(buf, rows[name].astype(buf.dtype), at, axis=0)
            for name, buf in memory.items()}


def adam(grads, params, state, lr=3e-4, b1=0.9, b2=0.999):
    m, v, t = state
    t = t + 1
    m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, m, grads)
    v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, v, grads)
    c1, c2 = 1 - b1 ** t, 1 - b2 ** t
    params = jax.tree.map(lambda p, m, v: p - lr * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), params, m, v)
    return params, (m, v, t)


@functools.partial(jax.jit, static_argnames="batch")
def learn(params, target, opt_state, memory, filled, key, batch):
    rows = jax.random.randint(key, (batch,), 0, filled)
    b = {name: buf[rows] for name, buf in memory.items()}

    def loss_fn(p):
        q = jnp.take_along_axis(q_values(p, b["obs"]), b["action"][:, None], 1)[:, 0]
        best = q_values(p, b["next"]).argmax(1)
        boot = jnp.take_along_axis(q_values(target, b["next"]), best[:, None], 1)[:, 0]
        goal = b["reward"] + 0.99 * boot * (1 - b["done"])
        err = q - jax.lax.stop_gradient(goal)
        return jnp.mean(jnp.where(jnp.abs(err) < 1, 0.5 * err ** 2, jnp.abs(err) - 0.5))

    loss, grads = jax.value_and_grad(loss_fn)(params)
    params, opt_state = adam(grads, params, opt_state)
    target = jax.tree.map(lambda a, b: 0.995 * a + 0.005 * b, target, params)
    return params, target, opt_state, loss


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", default="slow", choices=["slow", "fixed", "healthy"])
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--max-seconds", type=float, default=120)
    p.add_argument("--envs", type=int, default=64)
    p.add_argument("--capacity", type=int, default=262144)
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--updates", type=int, default=2)
    args = p.parse_args()

    key = jax.random.key(0)
    key, k = jax.random.split(key)
    params = init_net(k)
    target = jax.tree.map(jnp.copy, params)
    zeros = jax.tree.map(jnp.zeros_like, params)
    opt_state = (zeros, zeros, jnp.zeros(()))
    memory = make_memory(args.capacity)
    store = jax.jit(remember, donate_argnames="memory") if args.variant == "fixed" else jax.jit(remember)
    obs = jax.random.normal(key, (args.envs, OBS)) * 0.1
    times, returns, losses = [], [], []
    begin = last = time.perf_counter()
    for step in range(args.steps):
        key, ka, ke, *kl = jax.random.split(key, 3 + args.updates)
        epsilon = max(0.05, 1 - step / 400)
        action = act(params, obs, epsilon, ka)
        nxt, reward, done = env_step(obs, action, ke)
        rows = {"obs": obs, "next": nxt, "action": action, "reward": reward, "done": done}
        memory = store(memory, rows, (step * args.envs) % args.capacity)
        obs = nxt
        filled = min((step + 1) * args.envs, args.capacity)
        for k in kl:
            params, target, opt_state, loss = learn(params, target, opt_state, memory, filled, k, batch=args.batch)
        returns.append(float(reward.mean()))
        losses.append(float(loss))
        now = time.perf_counter()
        times.append((now - last) * 1e3)
        last = now
        if now - begin > args.max_seconds:
            break
    t = times[10:] or times
    print(json.dumps({"steps": len(times), "mean_ms": round(statistics.fmean(t), 3),
                      "median_ms": round(statistics.median(t), 3),
                      "return": round(float(np.mean(returns[-50:])), 4), "loss": round(losses[-1], 5)}))


if __name__ == "__main__":
    main()
