"""PPO-style training of a rover on procedurally generated terrain, thousands of environments on the device."""
import argparse
import json
import statistics
import time
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

PROGRAM = "z06"


@dataclass(frozen=True)
class EnvConfig:
    envs: int = 8192
    size: int = 64
    patch: int = 11
    horizon: int = 600
    octaves: int = 3
    erosion: int = 6
    unroll: int = 4
    epochs: int = 3
    width: int = 1024
    atlas: int = 256

    @classmethod
    def for_device(cls, device):
        if device == "cpu":
            return cls(envs=8, size=16, patch=3, horizon=40, unroll=2, epochs=1, width=16, atlas=4)
        return cls()


class Rover(NamedTuple):
    pos: jax.Array
    vel: jax.Array
    goal: jax.Array
    ground: jax.Array
    clock: jax.Array


def make_terrain(key, cfg):
    s = cfg.size
    fy, fx = jnp.fft.fftfreq(s)[:, None], jnp.fft.rfftfreq(s)[None, :]
    radius = jnp.sqrt(fy**2 + fx**2) + 1.0 / s
    field = jnp.zeros((s, s))
    for o, k in enumerate(jax.random.split(key, cfg.octaves)):
        spectrum = jnp.fft.rfft2(jax.random.normal(k, (s, s)))
        field += jnp.fft.irfft2(spectrum * radius ** -(1.2 + 0.4 * o), s=(s, s)) / 2.0**o
    field = field / (jnp.std(field) + 1e-6)
    for _ in range(cfg.erosion):
        lap = (jnp.roll(field, 1, 0) + jnp.roll(field, -1, 0) + jnp.roll(field, 1, 1) + jnp.roll(field, -1, 1)) / 4 - field
        field += 0.3 * jnp.where(jnp.abs(lap) > 0.02, lap, 0.0)
    return field


def spawn(key, ground, cfg):
    k1, k2 = jax.random.split(key)
    lo, hi = cfg.size * 0.25, cfg.size * 0.75
    return Rover(
        pos=jax.random.uniform(k1, (2,), minval=lo, maxval=hi), vel=jnp.zeros(2),
        goal=jax.random.uniform(k2, (2,), minval=lo, maxval=hi), ground=ground, clock=jnp.int32(0),
    )


def reset(key, cfg):
    kt, ks = jax.random.split(key)
    return spawn(ks, make_terrain(kt, cfg), cfg)


def observe(r, cfg):
    half = cfg.patch // 2
    corner = jnp.clip(r.pos.astype(jnp.int32) - half, 0, cfg.size - cfg.patch)
    view = jax.lax.dynamic_slice(r.ground, (corner[0], corner[1]), (cfg.patch, cfg.patch))
    return jnp.concatenate([view.ravel(), r.pos / cfg.size, r.vel, (r.goal - r.pos) / cfg.size])


def physics(r, act, cfg):
    c = jnp.clip(r.pos.astype(jnp.int32), 1, cfg.size - 2)
    slope = jnp.stack([r.ground[c[0] + 1, c[1]] - r.ground[c[0] - 1, c[1]], r.ground[c[0], c[1] + 1] - r.ground[c[0], c[1] - 1]])
    vel = 0.9 * r.vel + 0.2 * jnp.tanh(act) - 0.1 * slope
    pos = r.pos + vel
    gone = jnp.any((pos < 1) | (pos > cfg.size - 2))
    arrived = jnp.linalg.norm(pos - r.goal) < 1.0
    reward = jnp.linalg.norm(r.pos - r.goal) - jnp.linalg.norm(pos - r.goal) + 5.0 * arrived - 2.0 * gone
    done = gone | arrived | (r.clock >= cfg.horizon)
    return r._replace(pos=pos, vel=vel, clock=r.clock + 1), reward, done


def pick(done, fresh, old):
    return jax.tree.map(lambda a, b: jnp.where(done, a, b), fresh, old)


def step_env(key, r, act, atlas, cfg):
    nxt, reward, done = physics(r, act, cfg)
    nxt = jax.lax.cond(done, lambda: reset(key, cfg), lambda: nxt)
    return nxt, reward, done


def step_env_atlas(key, r, act, atlas, cfg):
    nxt, reward, done = physics(r, act, cfg)
    kt, ks = jax.random.split(key)
    ground = atlas[jax.random.randint(kt, (), 0, cfg.atlas)]
    return pick(done, spawn(ks, ground, cfg), nxt), reward, done


ENV_STEP = {"slow": step_env, "fixed": step_env_atlas}


def init_net(key, cfg):
    sizes = [cfg.patch**2 + 6, cfg.width, cfg.width, cfg.width, 3]
    ks = jax.random.split(key, len(sizes) - 1)
    return [{"w": jax.random.normal(k, (a, b)) * (2.0 / a) ** 0.5 * (0.1 if b == 3 else 1.0), "b": jnp.zeros(b)}
            for k, a, b in zip(ks, sizes[:-1], sizes[1:])]


def net(params, x):
    for p in params[:-1]:
        x = jax.nn.silu(x @ p["w"] + p["b"])
    y = x @ params[-1]["w"] + params[-1]["b"]
    return y[..., :2], y[..., 2]


def log_prob(mean, act):
    return -2.0 * jnp.sum((act - mean) ** 2, -1)


def ppo_loss(params, obs, act, old, adv, ret):
    mean, value = net(params, obs)
    ratio = jnp.exp(log_prob(mean, act) - old)
    gain = jnp.minimum(ratio * adv, jnp.clip(ratio, 0.8, 1.2) * adv)
    return -gain.mean() + 0.5 * jnp.mean((value - ret) ** 2)


def build_update(cfg, tx, env_step):
    batched = jax.vmap(partial(env_step, cfg=cfg), in_axes=(0, 0, 0, None))
    look = jax.vmap(partial(observe, cfg=cfg))

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def update(params, opt_state, rovers, key, atlas):
        hist = []
        for _ in range(cfg.unroll):
            key, ka, ke = jax.random.split(key, 3)
            obs = look(rovers)
            mean, value = net(params, obs)
            act = mean + 0.5 * jax.random.normal(ka, mean.shape)
            rovers, reward, done = batched(jax.random.split(ke, cfg.envs), rovers, act, atlas)
            hist.append((obs, act, log_prob(mean, act), value, reward, done))
        ret = net(params, look(rovers))[1]
        rets = []
        for *_, reward, done in reversed(hist):
            ret = reward + 0.99 * ret * (1.0 - done)
            rets.append(ret)
        obs, act, old, value = (jnp.concatenate([h[j] for h in hist]) for j in range(4))
        ret = jnp.concatenate(rets[::-1])
        adv = ret - value
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        for _ in range(cfg.epochs):
            loss, grads = jax.value_and_grad(ppo_loss)(params, obs, act, old, adv, ret)
            upd, opt_state = tx.update(grads, opt_state, params)
            params = optax.apply_updates(params, upd)
        return params, opt_state, rovers, key, loss

    return update


def parse_args(variants):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def drive(args, step, wait, steps, warmup):
    for i in range(warmup):
        step(i)
    wait()
    laps, it = [], warmup
    start = last = time.perf_counter()
    for _ in range(steps):
        step(it)
        it += 1
        now = time.perf_counter()
        laps.append(now - last)
        last = now
        if args.max_seconds and now - start > args.max_seconds:
            break
    wait()
    total = time.perf_counter() - start
    print(json.dumps({
        "program": PROGRAM, "variant": args.variant, "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 3),
        "step_ms_median": round(1e3 * statistics.median(laps), 3),
    }), flush=True)
    if args.trace:
        for _ in range(2):
            step(it)
            it += 1
        wait()
        with jax.profiler.trace(args.trace):
            for _ in range(4):
                with jax.profiler.StepTraceAnnotation("train", step_num=it):
                    step(it)
                it += 1
            wait()


class Learner:
    def __init__(self, cfg, env_step):
        k0, k1, k2, self.key = jax.random.split(jax.random.key(0), 4)
        self.cfg = cfg
        self.params = init_net(k0, cfg)
        tx = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4))
        self.opt_state = tx.init(self.params)
        self.atlas = jax.jit(jax.vmap(partial(make_terrain, cfg=cfg)))(jax.random.split(k2, cfg.atlas))
        rovers = jax.jit(jax.vmap(partial(reset, cfg=cfg)))(jax.random.split(k1, cfg.envs))
        self.rovers = rovers._replace(clock=jnp.arange(cfg.envs, dtype=jnp.int32) % cfg.horizon)
        self.update = build_update(cfg, tx, env_step)
        self.losses = []

    def step(self, i):
        self.params, self.opt_state, self.rovers, self.key, loss = self.update(
            self.params, self.opt_state, self.rovers, self.key, self.atlas)
        self.losses.append(loss)
        if len(self.losses) == 50:
            self.mean_loss = float(np.mean(jax.device_get(self.losses)))
            self.losses.clear()

    def wait(self):
        jax.block_until_ready(self.params)


def main():
    args = parse_args(["slow", "fixed"])
    if args.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    learner = Learner(EnvConfig.for_device(args.device), ENV_STEP[args.variant])
    default = {"slow": 500, "fixed": 1000}[args.variant]
    drive(args, learner.step, learner.wait, args.steps or (default if args.device == "cuda" else 4), warmup=4)


if __name__ == "__main__":
    main()
