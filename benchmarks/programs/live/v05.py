"""On-device policy gradient over procedurally generated caves (JAX, thousands of parallel environments)."""
import argparse
import json
import os
import statistics
import sys
import time
from functools import partial
from typing import NamedTuple

if "--device" in sys.argv and sys.argv[sys.argv.index("--device") + 1] == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp


class Params(NamedTuple):
    size: int = 40
    smoothing: int = 6
    flood: int = 48
    view: int = 9
    limit: int = 256


class State(NamedTuple):
    walls: jax.Array
    dist: jax.Array
    pos: jax.Array
    goal: jax.Array
    t: jax.Array


MOVES = jnp.array([[0, 1], [0, -1], [1, 0], [-1, 0], [0, 0]])


def neighbours(x):
    p = jnp.pad(x, 1, constant_values=1)
    n = x.shape[0]
    return sum(p[i:i + n, j:j + n] for i in range(3) for j in range(3)) - x


def carve(key, p: Params):
    grid = jax.random.bernoulli(key, 0.42, (p.size, p.size)).astype(jnp.int32)
    body = lambda _, g: jnp.where(neighbours(g) >= 5, 1, 0)
    grid = jax.lax.fori_loop(0, p.smoothing, body, grid)
    return grid.at[0].set(1).at[-1].set(1).at[:, 0].set(1).at[:, -1].set(1)


def geodesic(walls, goal, p: Params):
    far = jnp.float32(p.size * p.size)
    start = jnp.full(walls.shape, far).at[goal[0], goal[1]].set(0.0)

    def relax(_, d):
        q = jnp.pad(d, 1, constant_values=far)
        near = jnp.minimum(jnp.minimum(q[2:, 1:-1], q[:-2, 1:-1]), jnp.minimum(q[1:-1, 2:], q[1:-1, :-2]))
        return jnp.where(walls == 1, far, jnp.minimum(d, near + 1.0))

    return jax.lax.fori_loop(0, p.flood, relax, start)


def observe(s: State, p: Params):
    h = p.view // 2
    crop = lambda m, fill: jax.lax.dynamic_slice(jnp.pad(m, h, constant_values=fill), (s.pos[0], s.pos[1]), (p.view, p.view))
    delta = (s.goal - s.pos).astype(jnp.float32) / p.size
    return jnp.concatenate([crop(s.walls, 1).astype(jnp.float32).reshape(-1), delta])


def reset(key, p: Params):
    k1, k2, k3 = jax.random.split(key, 3)
    walls = carve(k1, p)
    free = jnp.where(walls == 0, 0.0, -1e9).reshape(-1)
    pick = lambda k: jnp.stack(jnp.divmod(jax.random.categorical(k, free), p.size))
    goal = pick(k2)
    s = State(walls, geodesic(walls, goal, p), pick(k3), goal, jnp.int32(0))
    return observe(s, p), s


def advance(s: State, action, p: Params):
    target = s.pos + MOVES[action]
    blocked = s.walls[target[0], target[1]] == 1
    pos = jnp.where(blocked, s.pos, target)
    gain = jnp.clip(s.dist[s.pos[0], s.pos[1]] - s.dist[pos[0], pos[1]], -1.0, 1.0)
    s = s._replace(pos=pos, t=s.t + 1)
    reached = jnp.all(pos == s.goal)
    return observe(s, p), s, 0.1 * gain + reached, reached | (s.t >= p.limit)


def step_autoreset(key, s: State, action, p: Params):
    obs, nxt, reward, done = advance(s, action, p)
    obs, nxt = jax.lax.cond(done, lambda: reset(key, p), lambda: (obs, nxt))
    return obs, nxt, reward, done


def vector_step_each(key, states, actions, p: Params):
    keys = jax.random.split(key, actions.shape[0])
    return jax.vmap(step_autoreset, in_axes=(0, 0, 0, None))(keys, states, actions, p)


def vector_step_pool(key, states, actions, p: Params):
    obs, nxt, reward, done = jax.vmap(advance, in_axes=(0, 0, None))(states, actions, p)
    n = actions.shape[0]
    pool = max(1, n // 64)
    fresh_obs, fresh = jax.vmap(reset, in_axes=(0, None))(jax.random.split(key, pool), p)
    slot = (jnp.cumsum(done) - 1) % pool
    choose = lambda new, old: jnp.where(done.reshape((n,) + (1,) * (old.ndim - 1)), new[slot], old)
    return choose(fresh_obs, obs), jax.tree.map(choose, fresh, nxt), reward, done


STEPPERS = {"slow": vector_step_each, "fixed": vector_step_pool}


class Policy:
    """Three hidden layers with layer normalisation, one head for the action and one for the value."""

    def __init__(self, width, actions=5):
        self.width, self.actions = width, actions

    def init(self, key, obs):
        sizes = [obs.shape[-1]] + [self.width] * 3
        keys = jax.random.split(key, len(sizes))
        dense = lambda k, i, o: {"w": jax.random.normal(k, (i, o)) * (2.0 / i) ** 0.5, "b": jnp.zeros(o)}
        hidden = [dict(dense(k, i, o), scale=jnp.ones(o), shift=jnp.zeros(o)) for k, i, o in zip(keys, sizes, sizes[1:])]
        return {"hidden": hidden, "head": dense(keys[-1], self.width, self.actions + 1)}

    def apply(self, w, x):
        for layer in w["hidden"]:
            x = x @ layer["w"] + layer["b"]
            x = (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
            x = jax.nn.gelu(x * layer["scale"] + layer["shift"])
        out = x @ w["head"]["w"] + w["head"]["b"]
        return out[..., :self.actions], out[..., self.actions]


class Adam:
    def __init__(self, lr, clip, b1=0.9, b2=0.999):
        self.lr, self.clip, self.b1, self.b2 = lr, clip, b1, b2

    def init(self, w):
        zeros = jax.tree.map(jnp.zeros_like, w)
        return {"m": zeros, "v": jax.tree.map(jnp.zeros_like, w), "t": jnp.int32(0)}

    def update(self, g, s, w):
        norm = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(g)))
        g = jax.tree.map(lambda x: x * jnp.minimum(1.0, self.clip / (norm + 1e-6)), g)
        t = s["t"] + 1
        m = jax.tree.map(lambda a, x: self.b1 * a + (1 - self.b1) * x, s["m"], g)
        v = jax.tree.map(lambda a, x: self.b2 * a + (1 - self.b2) * x * x, s["v"], g)
        c1, c2 = 1 - self.b1 ** t, 1 - self.b2 ** t
        w = jax.tree.map(lambda p, a, b: p - self.lr * (a / c1) / (jnp.sqrt(b / c2) + 1e-8), w, m, v)
        return w, {"m": m, "v": v, "t": t}


class Learner:
    def __init__(self, variant, envs, width, horizon, p: Params):
        self.p, self.horizon, self.stepper = p, horizon, STEPPERS[variant]
        self.policy = Policy(width)
        self.tx = Adam(3e-4, 0.5)
        self.key = jax.random.key(0)
        self.key, k = jax.random.split(self.key)
        self.obs, self.states = jax.jit(jax.vmap(partial(reset, p=p)))(jax.random.split(k, envs))
        self.states = self.states._replace(t=jax.random.randint(k, (envs,), 0, p.limit))
        self.weights = self.policy.init(k, self.obs)
        self.opt = self.tx.init(self.weights)
        self._update = jax.jit(self.update, donate_argnums=(0, 1, 2, 3))

    def rollout(self, weights, obs, states, key):
        def tick(carry, k):
            obs, states = carry
            ka, kr = jax.random.split(k)
            logits, value = self.policy.apply(weights, obs)
            action = jax.random.categorical(ka, logits)
            nobs, states, reward, done = self.stepper(kr, states, action, self.p)
            return (nobs, states), (obs, action, value, reward, done)

        return jax.lax.scan(tick, (obs, states), jax.random.split(key, self.horizon))

    def update(self, weights, opt, obs, states, key):
        (obs, states), (o, a, v, r, d) = self.rollout(weights, obs, states, key)
        _, last = self.policy.apply(weights, obs)
        back = lambda ret, x: ((x[0] + 0.99 * ret * (1.0 - x[1]),) * 2)
        _, returns = jax.lax.scan(back, last, (r, d), reverse=True)

        def loss(w):
            logits, value = self.policy.apply(w, o)
            logp = jax.nn.log_softmax(logits)
            chosen = jnp.take_along_axis(logp, a[..., None], axis=-1)[..., 0]
            adv = jax.lax.stop_gradient(returns - value)
            entropy = -(jnp.exp(logp) * logp).sum(-1).mean()
            return -(chosen * adv).mean() + 0.5 * ((returns - value) ** 2).mean() - 0.01 * entropy

        value, grads = jax.value_and_grad(loss)(weights)
        weights, opt = self.tx.update(grads, opt, weights)
        return weights, opt, obs, states, value

    def step(self):
        self.key, k = jax.random.split(self.key)
        self.weights, self.opt, self.obs, self.states, loss = self._update(self.weights, self.opt, self.obs, self.states, k)
        return loss


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=sorted(STEPPERS), default="slow")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--max-seconds", type=float, default=60.0)
    ap.add_argument("--trace")
    args = ap.parse_args()
    if args.device == "cpu":
        learner = Learner(args.variant, 64, 32, 2, Params(size=16, smoothing=2, flood=8))
    else:
        learner = Learner(args.variant, 8192, 1024, 8, Params())
    for _ in range(3):
        loss = learner.step()
    jax.block_until_ready(loss)
    start = time.perf_counter()
    laps, prev = [], None
    while len(laps) < args.steps:
        lap = time.perf_counter()
        loss = learner.step()
        if prev is not None:
            jax.block_until_ready(prev)  # at most one update in flight
        prev = loss
        laps.append(time.perf_counter() - lap)
        if time.perf_counter() - start > args.max_seconds:
            break
    jax.block_until_ready(loss)
    total = time.perf_counter() - start
    print(json.dumps({"program": "v05", "variant": args.variant, "steps": len(laps), "step_ms_mean": 1e3 * total / len(laps),
                      "step_ms_median": 1e3 * statistics.median(laps)}), flush=True)
    if args.trace:
        for _ in range(2):
            jax.block_until_ready(learner.step())
        with jax.profiler.trace(args.trace):
            for i in range(4):
                with jax.profiler.StepTraceAnnotation("train", step_num=i):
                    loss = learner.step()
            jax.block_until_ready(loss)


if __name__ == "__main__":
    main()
