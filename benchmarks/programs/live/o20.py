"""PPO-style learner in JAX on a vectorised terrain-crossing environment (whole rollout on device)."""
import argparse
import json
import os
import statistics
import time
from typing import NamedTuple


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=90)
    p.add_argument("--max-seconds", type=float, default=60.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


ARGS = parse_args()
if ARGS.device == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import optax

GPU = ARGS.device == "cuda"
ENVS, GRID, HORIZON, EROSION, HIDDEN = (4096, 64, 32, 24, 512) if GPU else (8, 16, 4, 3, 16)
POOL, LIMIT, PATCH = (128, 200, 11) if GPU else (4, 6, 5)


class State(NamedTuple):
    terrain: jax.Array
    position: jax.Array
    velocity: jax.Array
    age: jax.Array


def make_terrain(key):
    height = jnp.zeros((GRID, GRID))
    for octave in range(4):
        key, sub = jax.random.split(key)
        cells = GRID >> (3 - octave)
        coarse = jax.random.normal(sub, (cells, cells)) * 0.5 ** octave
        height = height + jax.image.resize(coarse, (GRID, GRID), "linear")

    def erode(_, h):
        lower = jnp.minimum(jnp.minimum(jnp.roll(h, 1, 0), jnp.roll(h, -1, 0)),
                            jnp.minimum(jnp.roll(h, 1, 1), jnp.roll(h, -1, 1)))
        flow = jnp.clip(h - lower, 0.0, 0.2) * 0.25
        gain = (jnp.roll(flow, 1, 0) + jnp.roll(flow, -1, 0) + jnp.roll(flow, 1, 1) + jnp.roll(flow, -1, 1))
        return h - flow + 0.25 * gain

    return jax.lax.fori_loop(0, EROSION, erode, height)


def reset(key):
    a, b = jax.random.split(key)
    start = jax.random.uniform(b, (2,), minval=PATCH, maxval=GRID - PATCH)
    return State(make_terrain(a), start, jnp.zeros(2), jnp.zeros((), jnp.int32))


def observe(state):
    corner = jnp.clip(state.position.astype(jnp.int32) - PATCH // 2, 0, GRID - PATCH)
    patch = jax.lax.dynamic_slice(state.terrain, (corner[0], corner[1]), (PATCH, PATCH))
    return jnp.concatenate([patch.ravel(), state.velocity, state.position / GRID])


def move(state, action):
    at = jnp.clip(state.position.astype(jnp.int32), 1, GRID - 2)
    slope = jnp.stack([state.terrain[at[0] + 1, at[1]] - state.terrain[at[0] - 1, at[1]],
                       state.terrain[at[0], at[1] + 1] - state.terrain[at[0], at[1] - 1]])
    velocity = 0.9 * state.velocity + 0.2 * jnp.tanh(action) - 0.05 * slope
    position = state.position + velocity
    outside = jnp.any((position < 0) | (position >= GRID))
    age = state.age + 1
    return State(state.terrain, position, velocity, age), velocity[0], outside | (age >= LIMIT)


def env_step_fresh(state, action, key, pool):
    state, reward, done = move(state, action)
    state = jax.lax.cond(done, lambda s: reset(key), lambda s: s, state)
    return state, reward, done


def env_step_pooled(state, action, key, pool):
    state, reward, done = move(state, action)
    index = jax.random.randint(key, (), 0, POOL)
    state = jax.tree.map(lambda first, now: jnp.where(done, first[index], now), pool, state)
    return state, reward, done


def init_params(key, sizes):
    params = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        key, sub = jax.random.split(key)
        params.append((jax.random.normal(sub, (a, b)) * a ** -0.5, jnp.zeros(b)))
    return params


def network(params, x):
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = params[-1]
    out = x @ w + b
    return out[..., :2], out[..., 2]


def log_prob(mean, action):
    return -0.5 * jnp.sum((action - mean) ** 2, -1)


def returns_of(rewards, dones, last):
    def back(carry, item):
        r, d = item
        carry = r + 0.99 * carry * (1.0 - d)
        return carry, carry
    return jax.lax.scan(back, last, (rewards, dones.astype(jnp.float32)), reverse=True)[1]


OPT = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4))


def make_train_step(env_step):
    def train_step(params, opt_state, states, key):
        key, pool_key = jax.random.split(key)
        pool = jax.vmap(reset)(jax.random.split(pool_key, POOL))

        def act(carry, key):
            states = carry
            a, b = jax.random.split(key)
            obs = jax.vmap(observe)(states)
            mean, value = network(params, obs)
            action = mean + jax.random.normal(a, mean.shape)
            states, reward, done = jax.vmap(env_step, in_axes=(0, 0, 0, None))(
                states, action, jax.random.split(b, ENVS), pool)
            return states, (obs, action, log_prob(mean, action), reward, done)

        key, sub = jax.random.split(key)
        states, (obs, action, logp, reward, done) = jax.lax.scan(
            act, states, jax.random.split(sub, HORIZON))
        last = network(params, jax.vmap(observe)(states))[1]
        target = returns_of(reward, done, last)

        def loss_fn(p):
            mean, value = network(p, obs)
            advantage = jax.lax.stop_gradient(target - value)
            ratio = jnp.exp(log_prob(mean, action) - logp)
            policy = -jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage).mean()
            return policy + 0.5 * jnp.square(target - value).mean()

        def epoch(carry, _):
            p, o = carry
            loss, grads = jax.value_and_grad(loss_fn)(p)
            updates, o = OPT.update(grads, o, p)
            return (optax.apply_updates(p, updates), o), loss

        (params, opt_state), losses = jax.lax.scan(epoch, (params, opt_state), None, length=4)
        return params, opt_state, states, key, losses[-1]

    return jax.jit(train_step, donate_argnums=(0, 1, 2))


def main():
    train_step = make_train_step({"slow": env_step_fresh, "fixed": env_step_pooled}[ARGS.variant])
    key = jax.random.key(0)
    params = init_params(jax.random.key(1), [PATCH * PATCH + 4, HIDDEN, HIDDEN, HIDDEN, 3])
    opt_state = OPT.init(params)
    states = jax.jit(jax.vmap(reset))(jax.random.split(jax.random.key(2), ENVS))
    carry = (params, opt_state, states, key)
    previous = None

    def step():
        nonlocal carry, previous
        *rest, loss = train_step(*carry)
        carry = tuple(rest)
        value = None if previous is None else float(previous)
        previous = loss
        return value

    for _ in range(3):
        step()
    jax.block_until_ready(carry)
    durations = []
    start = time.perf_counter()
    for _ in range(ARGS.steps):
        tick = time.perf_counter()
        step()
        now = time.perf_counter()
        durations.append(now - tick)
        if now - start > ARGS.max_seconds:
            break
    jax.block_until_ready(carry)
    total = time.perf_counter() - start
    print(json.dumps({"program": "o20", "variant": ARGS.variant, "steps": len(durations),
                      "step_ms_mean": round(1e3 * total / len(durations), 3),
                      "step_ms_median": round(1e3 * statistics.median(durations), 3)}), flush=True)
    if ARGS.trace:
        step()
        step()
        jax.block_until_ready(carry)
        with jax.profiler.trace(ARGS.trace):
            for i in range(4):
                with jax.profiler.StepTraceAnnotation("train", step_num=i):
                    step()
            jax.block_until_ready(carry)


if __name__ == "__main__":
    main()
