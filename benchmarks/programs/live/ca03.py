"""Advantage actor-critic on procedurally generated mazes, everything on device with JAX."""

import argparse
import functools
import json
import statistics
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

SIZE, ENVS, ROLLOUT, HORIZON, HIDDEN, ACTIONS = 16, 64, 16, 200, 128, 4
MOVES = jnp.array([[0, 1], [1, 0], [0, -1], [-1, 0]])


class EnvState(NamedTuple):
    walls: jax.Array
    dist: jax.Array
    pos: jax.Array
    t: jax.Array


class Step(NamedTuple):
    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    done: jax.Array


def geodesic(walls, goal, iters=2 * SIZE):
    """Steps to the goal from every open cell."""
    big = 1e3
    d0 = jnp.full((SIZE, SIZE), big).at[goal[0], goal[1]].set(0.0)

    def relax(d, _):
        p = jnp.pad(d, 1, constant_values=big)
        near = jnp.minimum(jnp.minimum(p[:-2, 1:-1], p[2:, 1:-1]), jnp.minimum(p[1:-1, :-2], p[1:-1, 2:]))
        return jnp.where(walls, big, jnp.minimum(d, near + 1)), None

    return lax.scan(relax, d0, None, length=iters)[0]


def generate(key):
    """A cave-like level by cellular automaton, with the goal in its interior."""
    k_wall, k_pos, k_goal = jax.random.split(key, 3)
    walls = jax.random.bernoulli(k_wall, 0.4, (SIZE, SIZE))

    def smooth(w, _):
        p = jnp.pad(w.astype(jnp.int32), 1, constant_values=1)
        n = sum(p[i:i + SIZE, j:j + SIZE] for i in range(3) for j in range(3))
        return n >= 5, None

    walls = lax.scan(smooth, walls, None, length=4)[0]
    goal = jax.random.randint(k_goal, (2,), 2, SIZE - 2)
    pos = jax.random.randint(k_pos, (2,), 0, SIZE)
    walls = walls.at[goal[0], goal[1]].set(False).at[pos[0], pos[1]].set(False)
    return EnvState(walls, geodesic(walls, goal), pos, jnp.zeros((), jnp.int32))


def observe(s: EnvState):
    pad = jnp.pad(s.walls, 2, constant_values=True)
    window = lax.dynamic_slice(pad, (s.pos[0], s.pos[1]), (5, 5)).reshape(-1).astype(jnp.float32)
    dist = jnp.pad(s.dist, 1, constant_values=1e3)
    near = lax.dynamic_slice(dist, (s.pos[0], s.pos[1]), (3, 3)).reshape(-1)
    return jnp.concatenate([window, jnp.minimum(near, 64.0) / 64.0, s.pos / SIZE])


def fresh_level(key, bank):
    if bank is None:
        return generate(key)
    i = jax.random.randint(key, (), 0, bank.t.shape[0])
    return jax.tree.map(lambda a: a[i], bank)


def env_step(s: EnvState, action, key, bank):
    target = jnp.clip(s.pos + MOVES[action], 0, SIZE - 1)
    pos = jnp.where(s.walls[target[0], target[1]], s.pos, target)
    before, after = s.dist[s.pos[0], s.pos[1]], s.dist[pos[0], pos[1]]
    reward = jnp.clip(before - after, -1.0, 1.0) + 5.0 * (after == 0) - 0.01
    moved = EnvState(s.walls, s.dist, pos, s.t + 1)
    done = (after == 0) | (moved.t >= HORIZON)
    nxt = lax.cond(done, lambda: fresh_level(key, bank), lambda: moved)
    return nxt, reward, done


def init_params(key, obs_dim):
    ks = jax.random.split(key, 4)
    dense = lambda k, i, o: {"w": jax.random.normal(k, (i, o)) / jnp.sqrt(i), "b": jnp.zeros(o)}
    return {"l1": dense(ks[0], obs_dim, HIDDEN), "l2": dense(ks[1], HIDDEN, HIDDEN),
            "pi": dense(ks[2], HIDDEN, ACTIONS), "v": dense(ks[3], HIDDEN, 1)}


def network(p, obs):
    lin = lambda q, x: x @ q["w"] + q["b"]
    h = jax.nn.tanh(lin(p["l2"], jax.nn.tanh(lin(p["l1"], obs))))
    return lin(p["pi"], h), lin(p["v"], h)[..., 0]


def rollout(params, env, key, bank):
    def one(carry, key):
        env = carry
        obs = jax.vmap(observe)(env)
        k_act, k_env = jax.random.split(key)
        logits, _ = network(params, obs)
        action = jax.random.categorical(k_act, logits)
        env, reward, done = jax.vmap(env_step, in_axes=(0, 0, 0, None))(
            env, action, jax.random.split(k_env, ENVS), bank)
        return env, Step(obs, action, reward, done)

    return lax.scan(one, env, jax.random.split(key, ROLLOUT))


def returns(traj, last_value, gamma=0.97):
    def back(acc, x):
        r, d = x
        acc = r + gamma * acc * (1 - d)
        return acc, acc

    return lax.scan(back, last_value, (traj.reward, traj.done.astype(jnp.float32)), reverse=True)[1]


def objective(params, traj, target):
    logits, value = network(params, traj.obs)
    logp = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(logp, traj.action[..., None], -1)[..., 0]
    adv = lax.stop_gradient(target - value)
    entropy = -(jnp.exp(logp) * logp).sum(-1).mean()
    return -(chosen * adv).mean() + 0.5 * jnp.square(target - value).mean() - 0.01 * entropy


@functools.partial(jax.jit, donate_argnums=(0, 1, 2))
def update(params, mom, env, key, bank):
    env, traj = rollout(params, env, key, bank)
    _, last_value = network(params, jax.vmap(observe)(env))
    grads = jax.grad(objective)(params, traj, returns(traj, last_value))
    mom = jax.tree.map(lambda m, g: 0.9 * m + g, mom, grads)
    params = jax.tree.map(lambda p, m: p - 3e-3 * m, params, mom)
    return params, mom, env, traj.reward.mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed", "healthy"], default="slow")
    ap.add_argument("--steps", type=int, default=2500)
    ap.add_argument("--max-seconds", type=float, default=60)
    args = ap.parse_args()
    key = jax.random.key(0)
    key, k_env, k_par, k_bank = jax.random.split(key, 4)
    env = jax.jit(jax.vmap(generate))(jax.random.split(k_env, ENVS))
    bank = None
    if args.variant != "slow":
        bank = jax.jit(jax.vmap(generate))(jax.random.split(k_bank, 4096))
    params = init_params(k_par, jax.vmap(observe)(env).shape[-1])
    mom = jax.tree.map(jnp.zeros_like, params)
    times, rewards, begin = [], [], time.perf_counter()
    for _ in range(args.steps):
        t0 = time.perf_counter()
        key, sub = jax.random.split(key)
        params, mom, env, reward = update(params, mom, env, sub, bank)
        rewards.append(float(reward))
        times.append(1e3 * (time.perf_counter() - t0))
        if time.perf_counter() - begin > args.max_seconds:
            break
    kept = times[3:] or times
    print(json.dumps({"steps": len(times), "mean_step_ms": round(statistics.fmean(kept), 3),
                      "median_step_ms": round(statistics.median(kept), 3),
                      "reward": round(statistics.fmean(rewards[-20:]), 4)}))


if __name__ == "__main__":
    main()
