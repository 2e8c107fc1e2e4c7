"""On-device legged-walker training in JAX: batched terrain environments, scan roll-outs, clipped policy updates."""
import argparse
import functools
import json
import os
import statistics
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp

PROGRAM = "gb05"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1000
WARMUP = 4


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
        with jax.profiler.trace(args.trace):
            for _ in range(4):
                step()
            wait()


class Terrain:
    """Band-limited height fields from a power-law spectrum."""

    def __init__(self, cells, roughness=1.6):
        self.cells = cells
        fy = jnp.fft.fftfreq(cells)[:, None]
        fx = jnp.fft.rfftfreq(cells)[None, :]
        radius = jnp.sqrt(fx ** 2 + fy ** 2)
        self.envelope = jnp.where(radius > 0, (radius + 1e-3) ** -roughness, 0.0)

    def sample(self, key):
        spectrum = jax.random.normal(key, (2,) + self.envelope.shape) * self.envelope
        field = jnp.fft.irfft2(spectrum[0] + 1j * spectrum[1], s=(self.cells, self.cells))
        field = field - field.min()
        return 0.4 * field / (field.max() + 1e-6)

    def height(self, field, xy):
        grid = jnp.mod(xy, 1.0) * self.cells
        low = jnp.floor(grid).astype(jnp.int32)
        frac = grid - low
        i0, j0 = low[..., 0] % self.cells, low[..., 1] % self.cells
        i1, j1 = (i0 + 1) % self.cells, (j0 + 1) % self.cells
        fx, fy = frac[..., 0], frac[..., 1]
        return (field[i0, j0] * (1 - fx) * (1 - fy) + field[i1, j0] * fx * (1 - fy)
                + field[i0, j1] * (1 - fx) * fy + field[i1, j1] * fx * fy)


class WalkerEnv:
    """One point-mass walker with four legs on its own terrain; episodes are cut after `horizon` steps."""
    legs, action_size = 4, 8

    def __init__(self, cells, horizon):
        self.terrain, self.horizon = Terrain(cells), horizon
        offsets = jnp.linspace(-0.06, 0.06, 5)
        self.scan_grid = jnp.stack(jnp.meshgrid(offsets, offsets, indexing="ij"), -1).reshape(-1, 2)
        self.feet = jnp.array([[0.03, 0.02], [0.03, -0.02], [-0.03, 0.02], [-0.03, -0.02]])
        self.observation_size = 25 + 3 + 3 + 8

    def reset(self, key):
        key, k_field, k_pos, k_goal = jax.random.split(key, 4)
        field = self.terrain.sample(k_field)
        xy = jax.random.uniform(k_pos, (2,))
        z = self.terrain.height(field, xy) + 0.3
        return {"key": key, "field": field, "pos": jnp.append(xy, z), "vel": jnp.zeros(3),
                "goal": jax.random.normal(k_goal, (3,)), "last": jnp.zeros(8), "t": jnp.zeros((), jnp.int32)}

    def observe(self, state):
        patch = self.terrain.height(state["field"], state["pos"][:2] + self.scan_grid) - state["pos"][2]
        return jnp.concatenate([patch, state["vel"], state["goal"], state["last"]])

    def advance(self, state, action):
        drive = jnp.tanh(action).reshape(self.legs, 2)
        pos, vel = state["pos"], state["vel"]
        for _ in range(4):
            ground = self.terrain.height(state["field"], pos[:2] + self.feet)
            load = jnp.maximum(0.0, ground + 0.3 - pos[2])
            push = (drive * load[:, None]).sum(0) * 8.0
            lift = load.sum() * 40.0 - 9.81 - 2.0 * vel[2]
            vel = vel + 0.005 * jnp.append(push - 0.5 * vel[:2], lift)
            pos = pos + 0.005 * vel
        reward = -jnp.square(vel[:2] - state["goal"][:2]).sum() - 0.01 * jnp.square(action).sum()
        t = state["t"] + 1
        new = dict(state, pos=pos, vel=vel, last=action, t=t)
        return new, reward, t >= self.horizon


def autoreset_each(env, state, action):
    new, reward, done = env.advance(state, action)
    new = jax.lax.cond(done, lambda s: env.reset(s["key"]), lambda s: s, new)
    return new, reward, done


def autoreset_batch(env, states, actions):
    new, reward, done = jax.vmap(env.advance)(states, actions)

    def refresh(current):
        fresh = jax.vmap(env.reset)(current["key"])
        pick = lambda a, b: jnp.where(done.reshape((-1,) + (1,) * (a.ndim - 1)), a, b)
        return jax.tree.map(pick, fresh, current)

    return jax.lax.cond(jnp.any(done), refresh, lambda s: s, new), reward, done


def init_mlp(key, sizes):
    keys = jax.random.split(key, len(sizes) - 1)
    return [(jax.random.normal(k, (a, b)) * (1.0 / a) ** 0.5, jnp.zeros(b))
            for k, a, b in zip(keys, sizes[:-1], sizes[1:])]


def mlp(params, x):
    for w, b in params[:-1]:
        x = jax.nn.elu(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def log_prob(mean, log_std, action):
    return (-0.5 * jnp.square((action - mean) / jnp.exp(log_std)) - log_std - 0.919).sum(-1)


def make_iteration(env, unroll, epochs, minibatches, lr, variant):
    if variant == "slow":
        env_step = jax.vmap(functools.partial(autoreset_each, env))
    else:
        env_step = functools.partial(autoreset_batch, env)

    def act(carry, key):
        states, params = carry
        obs = jax.vmap(env.observe)(states)
        mean = mlp(params["actor"], obs)
        action = mean + jnp.exp(params["log_std"]) * jax.random.normal(key, mean.shape)
        states, reward, done = env_step(states, action)
        record = {"obs": obs, "action": action, "reward": reward, "done": done,
                  "logp": log_prob(mean, params["log_std"], action), "value": mlp(params["critic"], obs)[..., 0]}
        return (states, params), record

    def advantages(traj, last_value):
        def back(carry, row):
            following, acc = carry
            alive = 1.0 - row["done"]
            delta = row["reward"] + 0.99 * alive * following - row["value"]
            acc = delta + 0.99 * 0.95 * alive * acc
            return (row["value"], acc), acc
        return jax.lax.scan(back, (last_value, jnp.zeros_like(last_value)), traj, reverse=True)[1]

    def loss_fn(params, batch):
        mean = mlp(params["actor"], batch["obs"])
        ratio = jnp.exp(log_prob(mean, params["log_std"], batch["action"]) - batch["logp"])
        adv = batch["adv"]
        surrogate = jnp.minimum(ratio * adv, jnp.clip(ratio, 0.8, 1.2) * adv).mean()
        value = mlp(params["critic"], batch["obs"])[..., 0]
        return 0.5 * jnp.square(value - batch["target"]).mean() - surrogate

    def update(carry, batch):
        params, moment = carry
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        moment = jax.tree.map(lambda m, g: 0.9 * m + g, moment, grads)
        params = jax.tree.map(lambda p, m: p - lr * m, params, moment)
        return (params, moment), loss

    @jax.jit
    def iteration(states, params, moment, key):
        key, k_roll = jax.random.split(key)
        (states, _), traj = jax.lax.scan(act, (states, params), jax.random.split(k_roll, unroll))
        last = mlp(params["critic"], jax.vmap(env.observe)(states))[..., 0]
        adv = advantages(traj, last)
        data = {k: traj[k] for k in ("obs", "action", "logp")}
        data["target"] = adv + traj["value"]
        data["adv"] = (adv - adv.mean()) / (adv.std() + 1e-6)
        data = jax.tree.map(lambda x: x.reshape((minibatches, -1) + x.shape[2:]), data)
        data = jax.tree.map(lambda x: jnp.concatenate([x] * epochs), data)
        (params, moment), losses = jax.lax.scan(update, (params, moment), data)
        return states, params, moment, key, losses.mean(), traj["reward"].mean()

    return iteration


def main():
    args = parse_args()
    if args.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    big = args.device == "cuda"
    envs, cells, unroll, hidden = (2048, 96, 32, 512) if big else (16, 16, 4, 32)
    env = WalkerEnv(cells, horizon=400 if big else 6)
    iteration = make_iteration(env, unroll, epochs=4, minibatches=4, lr=1e-4, variant=args.variant)
    k_env, k_actor, k_critic, k_run = jax.random.split(jax.random.PRNGKey(0), 4)
    obs = env.observation_size
    params = {"actor": init_mlp(k_actor, [obs, hidden, hidden, hidden, env.action_size]),
              "critic": init_mlp(k_critic, [obs, hidden, hidden, hidden, 1]), "log_std": jnp.full((8,), -1.0, jnp.float32)}
    box = {"states": jax.jit(jax.vmap(env.reset))(jax.random.split(k_env, envs)), "params": params,
           "moment": jax.tree.map(jnp.zeros_like, params), "key": k_run, "n": 0}

    def step():
        box["states"], box["params"], box["moment"], box["key"], loss, reward = iteration(
            box["states"], box["params"], box["moment"], box["key"])
        box["n"] += 1
        if box["n"] % 20 == 0:
            box["log"] = (float(loss), float(reward))

    run_loop(args, step, lambda: jax.block_until_ready(box["params"]))
    if "log" in box:
        print(json.dumps({"loss": round(box["log"][0], 5), "reward": round(box["log"][1], 5)}))


if __name__ == "__main__":
    main()
