"""Policy-gradient agents exploring generated caves, rollout and update compiled together."""
import argparse
import functools
import json
import os
import statistics
import time

PROGRAM = "gg04"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 500
WARMUP = 2
SIDE = 32
HORIZON = 32
LIMIT = 128
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def run_loop(args, step, wait):
    for _ in range(WARMUP):
        step()
    wait()
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    wait()
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        record_trace(args.trace, step, wait)


def record_trace(path, step, wait):
    import glob
    import gzip
    import shutil
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for i in range(4):
                with jax.profiler.StepTraceAnnotation("step", step_num=i):
                    step()
            wait()
        found = glob.glob(os.path.join(folder, "**", "*.trace.json.gz"), recursive=True)[0]
        if path.endswith(".gz"):
            shutil.copy(found, path)
        else:
            with gzip.open(found, "rb") as src, open(path, "wb") as dst:
                shutil.copyfileobj(src, dst)


ARGS = parse_args()
if ARGS.device == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import optax
from typing import NamedTuple

ENVS = 2048 if ARGS.device == "cuda" else 64


class World(NamedTuple):
    walls: jax.Array
    reach: jax.Array
    agent: jax.Array
    goal: jax.Array
    clock: jax.Array


def neighbours(grid):
    p = jnp.pad(grid, 1)
    return p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]


def carve(key):
    """Cellular automaton caves."""
    cells = jax.random.bernoulli(key, 0.42, (SIDE, SIDE)).astype(jnp.float32)

    def smooth(_, c):
        p = jnp.pad(c, 1, constant_values=1.0)
        around = sum(p[i:i + SIDE, j:j + SIDE] for i in range(3) for j in range(3))
        return (around >= 5).astype(jnp.float32)

    return jax.lax.fori_loop(0, 5, smooth, cells)


def flood(walls, start):
    """Walking distance from the start, for cells that can be reached."""
    dist = jnp.full((SIDE, SIDE), 1e4).at[start[0], start[1]].set(0.0)

    def spread(_, d):
        p = jnp.pad(d, 1, constant_values=1e4)
        near = jnp.minimum(jnp.minimum(p[:-2, 1:-1], p[2:, 1:-1]), jnp.minimum(p[1:-1, :-2], p[1:-1, 2:]))
        return jnp.where(walls > 0, 1e4, jnp.minimum(d, near + 1))

    return jax.lax.fori_loop(0, 2 * SIDE, spread, dist)


def begin(key):
    k1, k2, k3 = jax.random.split(key, 3)
    walls = carve(k1)
    first = jax.random.categorical(k2, jnp.where(walls.ravel() > 0, -1e9, 0.0))
    agent = jnp.stack([first // SIDE, first % SIDE])
    walls = walls.at[agent[0], agent[1]].set(0.0)
    reach = flood(walls, agent)
    far = jax.random.categorical(k3, jnp.where(reach.ravel() < 1e4, 0.05 * reach.ravel(), -1e9))
    return World(walls, reach, agent, jnp.stack([far // SIDE, far % SIDE]), jnp.zeros((), jnp.int32))


def advance(world, action):
    target = jnp.clip(world.agent + jnp.array(MOVES)[action], 0, SIDE - 1)
    blocked = world.walls[target[0], target[1]] > 0
    agent = jnp.where(blocked, world.agent, target)
    found = jnp.all(agent == world.goal)
    clock = world.clock + 1
    return world._replace(agent=agent, clock=clock), found.astype(jnp.float32) - 0.01, found | (clock >= LIMIT)


def observe(world):
    pad = jnp.pad(world.walls, 4, constant_values=1.0)
    view = jax.lax.dynamic_slice(pad, world.agent, (9, 9)).ravel()
    offset = (world.goal - world.agent) / SIDE
    return jnp.concatenate([view, offset, world.clock[None] / LIMIT])


def fresh_world(key, world, done, shelf):
    return jax.lax.cond(done, begin, lambda _: world, key)


def shelved_world(key, world, done, shelf):
    pick = jax.random.randint(key, (), 0, shelf.clock.shape[0])
    return jax.tree.map(lambda s, w: jnp.where(done, s[pick], w), shelf, world)


SHELF, FOLLOW = {"slow": (1, fresh_world), "fixed": (512, shelved_world)}[ARGS.variant]


def init_net(key, width=256):
    sizes = (84, width, width, 5)
    keys = jax.random.split(key, len(sizes) - 1)
    return [(jax.random.normal(k, (a, b)) * a ** -0.5, jnp.zeros(b)) for k, a, b in zip(keys, sizes[:-1], sizes[1:])]


def net(params, x):
    for w, b in params[:-1]:
        x = jax.nn.gelu(x @ w + b)
    w, b = params[-1]
    out = x @ w + b
    return out[..., :4], out[..., 4]


def rollout(params, worlds, key, shelf):
    def tick(carry, k):
        worlds, = carry
        obs = jax.vmap(observe)(worlds)
        logits, value = net(params, obs)
        ka, kr = jax.random.split(k)
        action = jax.random.categorical(ka, logits)
        worlds, reward, done = jax.vmap(advance)(worlds, action)
        worlds = jax.vmap(FOLLOW, in_axes=(0, 0, 0, None))(jax.random.split(kr, ENVS), worlds, done, shelf)
        return (worlds,), (obs, action, reward, done, value)

    (worlds,), steps = jax.lax.scan(tick, (worlds,), jax.random.split(key, HORIZON))
    return worlds, steps


def returns(reward, done, last):
    def back(acc, rd):
        r, d = rd
        acc = r + 0.99 * acc * (1 - d)
        return acc, acc
    return jax.lax.scan(back, last, (reward, done.astype(jnp.float32)), reverse=True)[1]


def loss_fn(params, obs, action, target):
    logits, value = net(params, obs)
    logp = jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]
    adv = jax.lax.stop_gradient(target - value)
    adv = (adv - adv.mean()) / (adv.std() + 1e-5)
    entropy = -(jax.nn.softmax(logits) * jax.nn.log_softmax(logits)).sum(-1).mean()
    return -(adv * logp).mean() + 0.5 * jnp.square(target - value).mean() - 0.01 * entropy


opt = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-4))


@functools.partial(jax.jit, donate_argnums=(0, 1, 2))
def iterate(params, opt_state, worlds, key):
    key, k1, k2 = jax.random.split(key, 3)
    shelf = jax.vmap(begin)(jax.random.split(k1, SHELF))
    worlds, (obs, action, reward, done, value) = rollout(params, worlds, k2, shelf)
    target = returns(reward, done, value[-1])

    def epoch(carry, _):
        params, opt_state = carry
        grads = jax.grad(loss_fn)(params, obs, action, target)
        updates, opt_state = opt.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), None

    (params, opt_state), _ = jax.lax.scan(epoch, (params, opt_state), None, length=4)
    return params, opt_state, worlds, key, reward.mean()


class Agent:
    def __init__(self):
        k1, k2, self.key = jax.random.split(jax.random.key(0), 3)
        self.params = init_net(k1)
        self.opt_state = opt.init(self.params)
        worlds = jax.jit(jax.vmap(begin))(jax.random.split(k2, ENVS))
        self.worlds = worlds._replace(clock=jnp.arange(ENVS, dtype=jnp.int32) % LIMIT)
        self.reward = None

    def step(self):
        out = iterate(self.params, self.opt_state, self.worlds, self.key)
        self.params, self.opt_state, self.worlds, self.key, self.reward = out

    def wait(self):
        jax.block_until_ready((self.params, self.reward))


if __name__ == "__main__":
    agent = Agent()
    run_loop(ARGS, agent.step, agent.wait)
