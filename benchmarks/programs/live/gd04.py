"""Value-based agent on a vectorised pixel world, in JAX: act, store transitions, learn from a uniform replay."""
import argparse
import functools
import json
import os
import statistics
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.42")

PROGRAM = "gd04"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 6000
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=45.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


ARGS = parse_args()
if ARGS.device == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from jax import lax

ACTIONS = 5
SIDE = 84
MOVES = jnp.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]], jnp.float32)


def init_network(key):
    shapes = {"c1": (8, 8, 4, 32), "c2": (4, 4, 32, 64), "c3": (3, 3, 64, 64),
              "d1": (7 * 7 * 64, 512), "d2": (512, ACTIONS)}
    params = {}
    for name, shape in shapes.items():
        key, sub = jax.random.split(key)
        fan_in = functools.reduce(lambda a, b: a * b, shape[:-1])
        params[name] = {"w": jax.random.normal(sub, shape) * (2.0 / fan_in) ** 0.5, "b": jnp.zeros(shape[-1])}
    return params


def q_values(params, frames):
    x = frames.astype(jnp.bfloat16) / 255
    for name, stride in (("c1", 4), ("c2", 2), ("c3", 1)):
        x = lax.conv_general_dilated(x, params[name]["w"].astype(x.dtype), (stride, stride), "VALID",
                                     dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + params[name]["b"].astype(x.dtype))
    x = x.reshape(x.shape[0], -1)
    x = jax.nn.relu(x @ params["d1"]["w"].astype(x.dtype) + params["d1"]["b"].astype(x.dtype))
    return x.astype(jnp.float32) @ params["d2"]["w"] + params["d2"]["b"]


def render(place, goal):
    grid = jnp.arange(SIDE, dtype=jnp.float32)

    def blob(p):
        rows = jnp.abs(grid[None] - p[:, :1]) < 4
        cols = jnp.abs(grid[None] - p[:, 1:]) < 4
        return rows[:, :, None] & cols[:, None, :]

    return (blob(place) * 255).astype(jnp.uint8) | (blob(goal) * 120).astype(jnp.uint8)


@jax.jit
def world_step(world, action, key):
    place = jnp.clip(world["place"] + 3 * MOVES[action], 4, SIDE - 5)
    distance = jnp.abs(place - world["goal"]).max(-1)
    done = distance < 4
    fresh = jax.random.uniform(key, place.shape, minval=4, maxval=SIDE - 5)
    goal = jnp.where(done[:, None], fresh, world["goal"])
    frame = render(place, goal)
    stack = jnp.concatenate([world["stack"][..., 1:], frame[..., None]], -1)
    return {"place": place, "goal": goal, "stack": stack}, done.astype(jnp.float32) - 0.01, done


@jax.jit
def act(params, stack, key, epsilon):
    greedy = q_values(params, stack).argmax(-1)
    k1, k2 = jax.random.split(key)
    explore = jax.random.uniform(k1, greedy.shape) < epsilon
    return jnp.where(explore, jax.random.randint(k2, greedy.shape, 0, ACTIONS), greedy)


def write_rows(storage, rows, cursor):
    return jax.tree.map(lambda s, r: lax.dynamic_update_slice_in_dim(s, r.astype(s.dtype), cursor, 0), storage, rows)


class Replay:
    def __init__(self, capacity, variant):
        self.storage = {
            "before": jnp.zeros((capacity, SIDE, SIDE, 4), jnp.uint8),
            "after": jnp.zeros((capacity, SIDE, SIDE, 4), jnp.uint8),
            "action": jnp.zeros((capacity,), jnp.int32),
            "reward": jnp.zeros((capacity,), jnp.float32),
            "done": jnp.zeros((capacity,), jnp.bool_),
        }
        self.capacity, self.cursor, self.filled = capacity, 0, 0
        self.write = jax.jit(write_rows, donate_argnums=(0,) if variant == "fixed" else ())

    def add(self, rows):
        count = rows["action"].shape[0]
        self.storage = self.write(self.storage, rows, self.cursor)
        self.cursor = (self.cursor + count) % self.capacity
        self.filled = min(self.filled + count, self.capacity)


@functools.partial(jax.jit, static_argnames="batch")
def sample(storage, filled, key, batch):
    rows = jax.random.randint(key, (batch,), 0, filled)
    return jax.tree.map(lambda s: s[rows], storage)


def td_loss(params, target, batch):
    q = jnp.take_along_axis(q_values(params, batch["before"]), batch["action"][:, None], 1)[:, 0]
    best = q_values(params, batch["after"]).argmax(-1)
    following = jnp.take_along_axis(q_values(target, batch["after"]), best[:, None], 1)[:, 0]
    aim = batch["reward"] + 0.99 * jnp.where(batch["done"], 0.0, following)
    error = q - lax.stop_gradient(aim)
    return jnp.where(jnp.abs(error) < 1, 0.5 * error ** 2, jnp.abs(error) - 0.5).mean()


@jax.jit
def learn(state, batch):
    loss, grads = jax.value_and_grad(td_loss)(state["params"], state["target"], batch)
    count = state["count"] + 1
    m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, state["m"], grads)
    v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, state["v"], grads)
    scale = 1e-4 * jnp.sqrt(1 - 0.999 ** count) / (1 - 0.9 ** count)
    params = jax.tree.map(lambda p, a, b: p - scale * a / (jnp.sqrt(b) + 1e-8), state["params"], m, v)
    target = jax.tree.map(lambda t, p: t + 0.005 * (p - t), state["target"], params)
    return {"params": params, "target": target, "m": m, "v": v, "count": count}, loss


class Agent:
    def __init__(self, envs, capacity, batch, updates, variant):
        self.key = jax.random.key(0)
        params = init_network(self.next_key())
        zeros = jax.tree.map(jnp.zeros_like, params)
        self.state = {"params": params, "target": params, "m": zeros, "v": zeros, "count": jnp.zeros(())}
        place = jax.random.uniform(self.next_key(), (envs, 2), minval=4, maxval=SIDE - 5)
        goal = jax.random.uniform(self.next_key(), (envs, 2), minval=4, maxval=SIDE - 5)
        self.world = {"place": place, "goal": goal, "stack": jnp.zeros((envs, SIDE, SIDE, 4), jnp.uint8)}
        self.replay = Replay(capacity, variant)
        self.batch, self.updates, self.turn, self.losses = batch, updates, 0, []

    def next_key(self):
        self.key, sub = jax.random.split(self.key)
        return sub

    def interact(self):
        before = self.world["stack"]
        action = act(self.state["params"], before, self.next_key(), 0.05)
        self.world, reward, done = world_step(self.world, action, self.next_key())
        self.replay.add({"before": before, "after": self.world["stack"], "action": action,
                         "reward": reward, "done": done})

    def step(self):
        self.interact()
        for _ in range(self.updates):
            batch = sample(self.replay.storage, self.replay.filled, self.next_key(), self.batch)
            self.state, loss = learn(self.state, batch)
        self.turn += 1
        self.losses.append(loss)
        if self.turn % 8 == 0:
            self.recent = float(jnp.stack(self.losses).mean())
            self.losses.clear()


def main():
    big = ARGS.device == "cuda"
    agent = Agent(128 if big else 4, 204800 if big else 64, 512 if big else 4, 2 if big else 1, ARGS.variant)
    for _ in range(WARMUP * 4):
        agent.step()
    jax.block_until_ready((agent.state, agent.replay.storage))
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(ARGS.steps):
        agent.step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if ARGS.max_seconds is not None and now - start > ARGS.max_seconds:
            break
    jax.block_until_ready((agent.state, agent.replay.storage))
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": ARGS.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if ARGS.trace:
        with jax.profiler.trace(ARGS.trace):
            for _ in range(4):
                agent.step()
            jax.block_until_ready(agent.state)


if __name__ == "__main__":
    main()
