"""Off-policy actor-critic training in JAX with vectorised environments and a device-resident replay buffer."""
import argparse
import functools
import json
import os
import statistics
import time

import jax
import jax.numpy as jnp


def parse_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    ap.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    ap.add_argument("--steps", type=int, default=None)
    ap.add_argument("--max-seconds", type=float, default=1e9)
    ap.add_argument("--trace", default=None)
    args = ap.parse_args()
    if args.steps is None:
        args.steps = 900 if args.device == "cuda" else 4
    return args


def init_mlp(key, sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        key, sub = jax.random.split(key)
        layers.append({"w": jax.random.normal(sub, (a, b)) * (2.0 / a) ** 0.5, "b": jnp.zeros((b,))})
    return layers


def mlp(layers, x):
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ layers[-1]["w"] + layers[-1]["b"]


def act(actor, obs):
    return jnp.tanh(mlp(actor, obs))


def value(critic, obs, action):
    return mlp(critic, jnp.concatenate((obs, action), axis=-1))[..., 0]


def env_step(world, obs, action, key):
    drift = jnp.tanh(obs @ world["a"] + action @ world["b"])
    following = 0.95 * obs + 0.05 * drift + 0.01 * jax.random.normal(key, obs.shape)
    reward = -jnp.square(following[:, :8]).sum(-1) - 0.1 * jnp.square(action).sum(-1)
    return following, reward


def collect(world, actor, obs, key):
    noise_key, env_key = jax.random.split(key)
    action = act(actor, obs)
    action = jnp.clip(action + 0.1 * jax.random.normal(noise_key, action.shape), -1.0, 1.0)
    following, reward = env_step(world, obs, action, env_key)
    return following, {"obs": obs, "action": action, "reward": reward, "next_obs": following}


def store(buffer, rows, at):
    return jax.tree.map(lambda b, r: jax.lax.dynamic_update_slice_in_dim(b, r, at, axis=0), buffer, rows)


def adam_init(params):
    zeros = functools.partial(jax.tree.map, jnp.zeros_like)
    return {"m": zeros(params), "v": zeros(params), "t": jnp.zeros((), jnp.int32)}


def adam(params, grads, opt, lr=3e-4, b1=0.9, b2=0.999, eps=1e-8):
    t = opt["t"] + 1
    m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, opt["m"], grads)
    v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, opt["v"], grads)
    rate = lr * jnp.sqrt(1 - b2 ** t.astype(jnp.float32)) / (1 - b1 ** t.astype(jnp.float32))
    params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v) + eps), params, m, v)
    return params, {"m": m, "v": v, "t": t}


def learn(batch, state, buffer, filled, key):
    pick = jax.random.randint(key, (batch,), 0, filled)
    rows = jax.tree.map(lambda b: jnp.take(b, pick, axis=0), buffer)

    def critic_loss(critics):
        following = act(state["target_actor"], rows["next_obs"])
        future = jnp.minimum(*(value(c, rows["next_obs"], following) for c in state["target_critics"]))
        goal = jax.lax.stop_gradient(rows["reward"] + 0.99 * future)
        return sum(jnp.square(value(c, rows["obs"], rows["action"]) - goal).mean() for c in critics)

    def actor_loss(actor):
        return -value(state["critics"][0], rows["obs"], act(actor, rows["obs"])).mean()

    loss, critic_grads = jax.value_and_grad(critic_loss)(state["critics"])
    actor_grads = jax.grad(actor_loss)(state["actor"])
    params = {"actor": state["actor"], "critics": state["critics"]}
    params, opt = adam(params, {"actor": actor_grads, "critics": critic_grads}, state["opt"])
    slide = functools.partial(jax.tree.map, lambda t, p: t + 0.005 * (p - t))
    return {
        "actor": params["actor"], "critics": params["critics"], "opt": opt,
        "target_actor": slide(state["target_actor"], params["actor"]),
        "target_critics": slide(state["target_critics"], params["critics"]),
    }, loss


class Agent:
    def __init__(self, device, jit_store):
        if device == "cuda":
            self.envs, self.capacity, obs, action, hidden, batch = 4096, 4096 * 768, 376, 17, 1024, 32768
        else:
            self.envs, self.capacity, obs, action, hidden, batch = 8, 64, 12, 3, 16, 16
        keys = jax.random.split(jax.random.key(0), 8)
        self.world = {"a": jax.random.normal(keys[0], (obs, obs)) * 0.05,
                      "b": jax.random.normal(keys[1], (action, obs)) * 0.05}
        actor = init_mlp(keys[2], (obs, hidden, hidden, action))
        critics = [init_mlp(k, (obs + action, hidden, hidden, 1)) for k in keys[3:5]]
        copied = functools.partial(jax.tree.map, jnp.copy)
        self.state = {"actor": actor, "critics": critics, "target_actor": copied(actor),
                      "target_critics": copied(critics),
                      "opt": adam_init({"actor": actor, "critics": critics})}
        self.buffer = {"obs": jnp.zeros((self.capacity, obs)), "action": jnp.zeros((self.capacity, action)),
                       "reward": jnp.zeros((self.capacity,)), "next_obs": jnp.zeros((self.capacity, obs))}
        self.obs = jax.random.normal(keys[5], (self.envs, obs))
        self.key = keys[6]
        self.count = 0
        self.collect = jax.jit(collect)
        self.store = jit_store(store)
        self.learn = jax.jit(functools.partial(learn, batch), donate_argnums=(0,))

    def step(self, i):
        self.key, a, b = jax.random.split(self.key, 3)
        self.obs, rows = self.collect(self.world, self.state["actor"], self.obs, a)
        self.buffer = self.store(self.buffer, rows, self.count % self.capacity)
        self.count += self.envs
        self.state, self.loss = self.learn(self.state, self.buffer, min(self.count, self.capacity), b)
        if i % 20 == 0:
            self.logged = float(self.loss)

    def wait(self):
        jax.block_until_ready((self.state, self.buffer, self.obs))


def main():
    args = parse_args()
    if args.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    jit_store = {"slow": jax.jit, "fixed": functools.partial(jax.jit, donate_argnums=(0,))}[args.variant]
    agent = Agent(args.device, jit_store)
    count = 0
    for _ in range(5):
        agent.step(count)
        count += 1
    agent.wait()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        agent.step(count)
        count += 1
        marks.append(time.perf_counter())
        if marks[-1] - marks[0] > args.max_seconds:
            break
    agent.wait()
    total = time.perf_counter() - marks[0]
    laps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": os.path.splitext(os.path.basename(__file__))[0],
        "variant": args.variant,
        "steps": len(laps),
        "step_ms_mean": round(1e3 * total / len(laps), 4),
        "step_ms_median": round(1e3 * statistics.median(laps), 4),
    }), flush=True)
    if args.trace:
        with jax.profiler.trace(args.trace):
            for n in range(6):
                with jax.profiler.StepTraceAnnotation("train", step_num=n):
                    agent.step(count)
                count += 1
            agent.wait()


if __name__ == "__main__":
    main()
