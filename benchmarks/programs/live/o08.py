"""JAX: PPO on thousands of procedurally generated caves, environment and learner in one jitted update."""
import argparse
import functools
import json
import os
import statistics
import time

PROGRAM = "o08"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 250
WARMUP = 3


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


ARGS = parse_args() if __name__ == "__main__" else None
if ARGS is not None and ARGS.device == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from jax import lax

VIEW = 4
MOVES = jnp.array([[0, 1], [0, -1], [1, 0], [-1, 0]], jnp.int32)


def run_loop(args, step, pending):
    for _ in range(WARMUP):
        step()
    jax.block_until_ready(pending())
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    jax.block_until_ready(pending())
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        for _ in range(2):
            step()
        jax.block_until_ready(pending())
        with jax.profiler.trace(args.trace):
            for i in range(4):
                with jax.profiler.StepTraceAnnotation("step", step_num=i):
                    step()
            jax.block_until_ready(pending())


def neighbours(grid):
    return sum(jnp.roll(jnp.roll(grid, i, 0), j, 1) for i in (-1, 0, 1) for j in (-1, 0, 1)) - grid


def carve(key, side, rounds=40):
    walls = jax.random.bernoulli(key, 0.44, (side, side)).astype(jnp.int32)
    walls = lax.fori_loop(0, rounds, lambda _, w: (neighbours(w) + w >= 5).astype(jnp.int32), walls)
    return walls.at[side // 2, side // 2].set(0)


def flood(walls, side):
    open_ = 1 - walls
    seen = jnp.zeros_like(walls).at[side // 2, side // 2].set(1)

    def grow(_, s):
        return jnp.where((s + neighbours(s) > 0) & (open_ > 0), 1, 0)

    return lax.fori_loop(0, 2 * side, grow, seen)


def new_cave(key, side):
    k1, k2 = jax.random.split(key)
    walls = carve(k1, side)
    reach = flood(walls, side)
    score = jnp.where(reach > 0, jax.random.uniform(k2, reach.shape), -1.0)
    goal = jnp.stack(jnp.unravel_index(jnp.argmax(score), score.shape)).astype(jnp.int32)
    return {"walls": walls.astype(jnp.int8), "goal": goal, "pos": jnp.full((2,), side // 2, jnp.int32),
            "age": jnp.zeros((), jnp.int32)}


def observe(env):
    padded = jnp.pad(env["walls"], VIEW, constant_values=1)
    patch = lax.dynamic_slice(padded, (env["pos"][0], env["pos"][1]), (2 * VIEW + 1, 2 * VIEW + 1))
    return jnp.concatenate([patch.reshape(-1).astype(jnp.float32), (env["goal"] - env["pos"]).astype(jnp.float32) / 16])


def move(env, action, limit):
    side = env["walls"].shape[0]
    target = jnp.clip(env["pos"] + MOVES[action], 0, side - 1)
    pos = jnp.where(env["walls"][target[0], target[1]] > 0, env["pos"], target)
    won = jnp.all(pos == env["goal"])
    env = dict(env, pos=pos, age=env["age"] + 1)
    done = won | (env["age"] >= limit)
    return env, won.astype(jnp.float32) - 0.01, done


def respawn_generate(env, done, key, shelf):
    side = env["walls"].shape[0]
    return lax.cond(done, lambda: new_cave(key, side), lambda: env)


def respawn_shelf(env, done, key, shelf):
    i = jax.random.randint(key, (), 0, shelf["age"].shape[0])
    return lax.cond(done, lambda: jax.tree.map(lambda a: a[i], shelf), lambda: env)


def no_shelf(key, count, side):
    return None


def fill_shelf(key, count, side):
    return jax.vmap(lambda k: new_cave(k, side))(jax.random.split(key, count))


RESPAWN = {"slow": (respawn_generate, no_shelf), "fixed": (respawn_shelf, fill_shelf)}


def init_net(key, sizes):
    keys = jax.random.split(key, len(sizes))
    return [(jax.random.normal(k, (a, b)) * (2.0 / a) ** 0.5, jnp.zeros((b,)))
            for k, a, b in zip(keys, sizes[:-1], sizes[1:])]


def apply_net(net, x):
    for w, b in net[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = net[-1]
    out = x @ w + b
    return out[..., :4], out[..., 4]


def ppo_loss(net, batch):
    logits, value = apply_net(net, batch["obs"])
    logp = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["action"][:, None], 1)[:, 0]
    ratio = jnp.exp(logp - batch["logp"])
    adv = (batch["adv"] - batch["adv"].mean()) / (batch["adv"].std() + 1e-6)
    gain = jnp.minimum(ratio * adv, jnp.clip(ratio, 0.8, 1.2) * adv).mean()
    return 0.5 * jnp.square(value - batch["ret"]).mean() - gain


def adam(net, grads, m, v, t, lr=3e-4):
    m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
    v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, v, grads)
    scale = lr * jnp.sqrt(1 - 0.999 ** t) / (1 - 0.9 ** t)
    return jax.tree.map(lambda p, a, b: p - scale * a / (jnp.sqrt(b) + 1e-8), net, m, v), m, v


def make_update(cfg, respawn, stock):
    envs, horizon, side = cfg["envs"], cfg["horizon"], cfg["side"]

    def rollout(net, env, key):
        key, sub = jax.random.split(key)
        shelf = stock(sub, envs // 4, side)

        def tick(carry, _):
            env, key = carry
            key, k1, k2 = jax.random.split(key, 3)
            obs = jax.vmap(observe)(env)
            logits, value = apply_net(net, obs)
            action = jax.random.categorical(k1, logits)
            logp = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
            env, reward, done = jax.vmap(move, (0, 0, None))(env, action, cfg["limit"])
            env = jax.vmap(respawn, (0, 0, 0, None))(env, done, jax.random.split(k2, envs), shelf)
            return (env, key), dict(obs=obs, action=action, logp=logp, value=value, reward=reward, done=done)

        (env, key), traj = lax.scan(tick, (env, key), None, length=horizon)
        return env, key, traj

    def advantages(traj, last):
        def back(carry, x):
            gae, nxt = carry
            live = 1.0 - x["done"]
            delta = x["reward"] + 0.99 * nxt * live - x["value"]
            gae = delta + 0.99 * 0.95 * live * gae
            return (gae, x["value"]), gae

        _, adv = lax.scan(back, (jnp.zeros_like(last), last), traj, reverse=True)
        return adv

    @functools.partial(jax.jit, donate_argnums=(0,))
    def update(state):
        env, key, traj = rollout(state["net"], state["env"], state["key"])
        _, last = apply_net(state["net"], jax.vmap(observe)(env))
        adv = advantages(traj, last)
        flat = dict(obs=traj["obs"], action=traj["action"], logp=traj["logp"], adv=adv, ret=adv + traj["value"])
        flat = jax.tree.map(lambda a: a.reshape((cfg["minibatches"], -1) + a.shape[2:]), flat)

        def learn(carry, batch):
            net, m, v, t = carry
            loss, grads = jax.value_and_grad(ppo_loss)(net, batch)
            net, m, v = adam(net, grads, m, v, t + 1)
            return (net, m, v, t + 1), loss

        carry = (state["net"], state["m"], state["v"], state["t"])
        for _ in range(2):
            carry, losses = lax.scan(learn, carry, flat)
        net, m, v, t = carry
        return dict(net=net, m=m, v=v, t=t, env=env, key=key), {"loss": losses.mean(), "reward": traj["reward"].mean()}

    return update


def main(args):
    if args.device == "cuda":
        cfg = dict(envs=4096, horizon=32, side=32, limit=96, minibatches=4, hidden=512)
    else:
        cfg = dict(envs=16, horizon=4, side=8, limit=6, minibatches=2, hidden=16)
    respawn, stock = RESPAWN[args.variant]
    key = jax.random.key(0)
    k1, k2, k3 = jax.random.split(key, 3)
    net = init_net(k1, [(2 * VIEW + 1) ** 2 + 2, cfg["hidden"], cfg["hidden"], 5])
    env = jax.jit(lambda k: jax.vmap(lambda s: new_cave(s, cfg["side"]))(jax.random.split(k, cfg["envs"])))(k2)
    zeros = lambda: jax.tree.map(jnp.zeros_like, net)
    state = {"s": dict(net=net, m=zeros(), v=zeros(), t=jnp.zeros((), jnp.float32), env=env, key=k3)}
    update = make_update(cfg, respawn, stock)
    history = []

    def step():
        state["s"], metrics = update(state["s"])
        history.append(float(metrics["reward"]))

    run_loop(args, step, lambda: state["s"]["t"])


if __name__ == "__main__":
    main(ARGS)
