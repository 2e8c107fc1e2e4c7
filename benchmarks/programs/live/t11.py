"""Actor-critic on procedurally generated terrains, environments and learner in one jitted update (JAX)."""
import argparse
import functools
import json
import statistics
import time

import jax
import jax.numpy as jnp
import optax

NAME = "t11"
STEPS = 140
WARMUP = 4
LIMIT = 200


def neighbours(z):
    up, down = jnp.roll(z, 1, 0), jnp.roll(z, -1, 0)
    return up + down + jnp.roll(z, 1, 1) + jnp.roll(z, -1, 1)


def raise_terrain(key, side, rounds):
    """Height map: noise, smoothed and eroded; heights in [0, 1]."""
    base = jax.random.normal(key, (side, side))

    def erode(_, z):
        mean = neighbours(z) * 0.25
        return 0.5 * z + 0.5 * mean - 0.05 * jnp.maximum(z - mean, 0) + 0.02 * base

    z = jax.lax.fori_loop(0, rounds, erode, base)
    return (z - z.min()) / (z.max() - z.min() + 1e-6)


def place(key, terrain):
    side = terrain.shape[0]
    spots = jax.random.randint(key, (2, 2), 0, side)
    return {"terrain": terrain, "at": spots[0], "goal": spots[1], "age": jnp.zeros((), jnp.int32)}


def generated(side, rounds, key):
    def reset(key):
        k1, k2 = jax.random.split(key)
        return place(k2, raise_terrain(k1, side, rounds))

    return reset


def drawn(side, rounds, key, count=512):
    pool = jax.jit(jax.vmap(lambda k: raise_terrain(k, side, rounds)))(jax.random.split(key, count))

    def reset(key):
        k1, k2 = jax.random.split(key)
        return place(k2, pool[jax.random.randint(k1, (), 0, count)])

    return reset


MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))


def observe(env, view):
    side = env["terrain"].shape[0]
    span = jnp.arange(view) - view // 2
    rows, cols = (env["at"][0] + span) % side, (env["at"][1] + span) % side
    patch = env["terrain"][rows][:, cols]
    return jnp.concatenate((patch.ravel(), (env["goal"] - env["at"]) / side))


def advance(env, action):
    side = env["terrain"].shape[0]
    target = (env["at"] + jnp.asarray(MOVES)[action]) % side
    climb = env["terrain"][target[0], target[1]] - env["terrain"][env["at"][0], env["at"][1]]
    moved = {**env, "at": target, "age": env["age"] + 1}
    arrived = jnp.all(target == env["goal"])
    return moved, arrived * 10.0 - 0.05 - jnp.maximum(climb, 0), arrived | (moved["age"] >= LIMIT)


def auto_reset(reset, env, action, key):
    env, reward, done = advance(env, action)
    env = jax.lax.cond(done, lambda: reset(key), lambda: env)
    return env, reward, done


def network(sizes, key):
    keys = jax.random.split(key, len(sizes))
    return [{"w": jax.random.normal(k, (a, b)) * a ** -0.5, "b": jnp.zeros(b)} for k, a, b in zip(keys, sizes, sizes[1:])]


def policy(params, x):
    x = x.astype(jnp.bfloat16)
    for p in params[:-1]:
        x = jax.nn.silu(x @ p["w"].astype(jnp.bfloat16) + p["b"].astype(jnp.bfloat16))
    y = x.astype(jnp.float32) @ params[-1]["w"] + params[-1]["b"]
    return y[..., :len(MOVES)], y[..., -1]


def returns(rewards, dones, last, gamma=0.99):
    def back(g, item):
        g = item[0] + gamma * g * (1.0 - item[1])
        return g, g

    return jax.lax.scan(back, last, (rewards, dones), reverse=True)[1]


def objective(params, seen, actions, goals):
    logits, values = policy(params, seen)
    logp = jax.nn.log_softmax(logits)
    advantage = jax.lax.stop_gradient(goals - values)
    chosen = jnp.take_along_axis(logp, actions[..., None], -1)[..., 0]
    entropy = -(jnp.exp(logp) * logp).sum(-1).mean()
    return -(chosen * advantage).mean() + 0.5 * jnp.square(goals - values).mean() - 0.01 * entropy


def make_update(reset, optim, horizon, view):
    look = jax.vmap(lambda env: observe(env, view))
    step_all = jax.vmap(functools.partial(auto_reset, reset))

    def update(carry):
        params, opt_state, envs, key = carry
        key, roll = jax.random.split(key)

        def act(envs, key):
            k1, k2 = jax.random.split(key)
            seen = look(envs)
            logits, _ = policy(params, seen)
            actions = jax.random.categorical(k1, logits)
            envs, rewards, dones = step_all(envs, actions, jax.random.split(k2, actions.shape[0]))
            return envs, (seen, actions, rewards, dones)

        envs, (seen, actions, rewards, dones) = jax.lax.scan(act, envs, jax.random.split(roll, horizon))
        goals = returns(rewards, dones, policy(params, look(envs))[1])
        loss, grads = jax.value_and_grad(objective)(params, seen, actions, goals)
        changes, opt_state = optim.update(grads, opt_state, params)
        return (optax.apply_updates(params, changes), opt_state, envs, key), loss

    return jax.jit(update, donate_argnums=0)


VARIANTS = {"slow": generated, "fixed": drawn}


def build(small, resets):
    side, rounds, count, horizon, view, hidden = (16, 4, 8, 4, 5, 32) if small else (64, 24, 4096, 32, 11, 2048)
    key = jax.random.key(0)
    k1, k2, k3, k4 = jax.random.split(key, 4)
    reset = resets(side, rounds, k1)
    optim = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-4))
    params = network([view * view + 2, hidden, hidden, hidden, len(MOVES) + 1], k2)
    envs = jax.jit(jax.vmap(reset))(jax.random.split(k3, count))
    envs["age"] = jax.random.randint(k4, (count,), 0, LIMIT)
    update = make_update(reset, optim, horizon, view)
    hold = {"carry": (params, optim.init(params), envs, jax.random.key(1))}

    def step():
        hold["carry"], hold["loss"] = update(hold["carry"])

    return step, lambda: jax.block_until_ready(hold["carry"])


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--variant", choices=sorted(VARIANTS), default="slow")
    ap.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    ap.add_argument("--steps", type=int, default=STEPS)
    ap.add_argument("--max-seconds", type=float, default=None)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    jax.config.update("jax_platforms", args.device)
    step, settle = build(args.device == "cpu", VARIANTS[args.variant])
    for _ in range(WARMUP):
        step()
    settle()
    marks = []
    begin = last = time.perf_counter()
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        marks.append((now - last) * 1e3)
        last = now
        if args.max_seconds and now - begin > args.max_seconds:
            break
    settle()
    mean = (time.perf_counter() - begin) * 1e3 / len(marks)
    print(json.dumps({"program": NAME, "variant": args.variant, "steps": len(marks), "step_ms_mean": round(mean, 3),
                      "step_ms_median": round(statistics.median(marks), 3)}), flush=True)
    if args.trace:
        for _ in range(2):
            step()
        settle()
        with jax.profiler.trace(args.trace):
            for i in range(4):
                with jax.profiler.StepTraceAnnotation("step", step_num=i):
                    step()
            settle()


if __name__ == "__main__":
    main()
