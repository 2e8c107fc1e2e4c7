"""Off-policy actor-critic on a vectorised point-mass task with a very large replay memory (JAX)."""
import argparse
import json
import functools
import statistics
import time

PROGRAM = "gi03"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 4000
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=40.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


OBS, ACT = 4, 1


def init_mlp(key, sizes):
    import jax
    params = []
    for a, b in zip(sizes, sizes[1:]):
        key, sub = jax.random.split(key)
        params.append((jax.random.normal(sub, (a, b)) * (1.5 / a) ** 0.5, jax.numpy.zeros((b,))))
    return params


def build(args):
    import jax
    import jax.numpy as jnp
    from jax import lax

    big = args.device == "cuda"
    capacity = 48_000_000 if big else 20_000
    n_env = 4096 if big else 64
    batch = 4096 if big else 128
    width = 2048 if big else 32
    gamma, tau, lr = 0.99, 0.005, 3e-4

    def mlp(params, x):
        for w, b in params[:-1]:
            x = jax.nn.relu(x @ w + b)
        w, b = params[-1]
        return x @ w + b

    def actor(params, obs):
        return jnp.tanh(mlp(params, obs))

    def critic(params, obs, act):
        return mlp(params, jnp.concatenate([obs, act], -1))[:, 0]

    def adam(params, grads, mom):
        m, v, t = mom
        t = t + 1
        m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, grads)
        v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, v, grads)
        c1, c2 = 1 - 0.9 ** t, 1 - 0.999 ** t
        params = jax.tree.map(lambda p, a, b: p - lr * (a / c1) / (jnp.sqrt(b / c2) + 1e-8), params, m, v)
        return params, (m, v, t)

    def fresh(params):
        zeros = jax.tree.map(jnp.zeros_like, params)
        return zeros, jax.tree.map(jnp.zeros_like, params), jnp.zeros((), jnp.float32)

    @functools.partial(jax.jit, donate_argnums=(1, 2))
    def collect(policy, env_obs, memory, cursor, key):
        noise = 0.1 * jax.random.normal(key, (n_env, ACT))
        act = jnp.clip(actor(policy, env_obs) + noise, -1, 1)
        pos, vel = env_obs[:, :2], env_obs[:, 2:]
        vel = 0.98 * vel + 0.05 * jnp.concatenate([act, -act], -1) - 0.02 * pos
        nxt = jnp.concatenate([pos + 0.05 * vel, vel], -1)
        reward = -jnp.square(nxt).sum(-1)
        row = {"obs": env_obs, "act": act, "rew": reward, "next": nxt}
        memory = {k: lax.dynamic_update_slice_in_dim(memory[k], row[k], cursor, 0) for k in memory}
        return nxt, memory

    def draw(key, memory):
        if args.variant == "slow":
            index = jax.random.choice(key, capacity, (batch,), replace=False)
        else:
            index = jax.random.randint(key, (batch,), 0, capacity)
        return {k: memory[k][index] for k in memory}

    @functools.partial(jax.jit, donate_argnums=(0,))
    def learn(state, memory, key):
        k1, k2 = jax.random.split(key)
        data = draw(k1, memory)
        noise = jnp.clip(0.2 * jax.random.normal(k2, (batch, ACT)), -0.5, 0.5)
        next_act = jnp.clip(actor(state["actor_t"], data["next"]) + noise, -1, 1)
        q_next = jnp.minimum(critic(state["q1_t"], data["next"], next_act),
                             critic(state["q2_t"], data["next"], next_act))
        target = data["rew"] + gamma * q_next

        def critic_loss(qs):
            q1 = critic(qs[0], data["obs"], data["act"])
            q2 = critic(qs[1], data["obs"], data["act"])
            return jnp.mean((q1 - target) ** 2) + jnp.mean((q2 - target) ** 2)

        def actor_loss(p):
            return -critic(state["q1"], data["obs"], actor(p, data["obs"])).mean()

        loss, gq = jax.value_and_grad(critic_loss)((state["q1"], state["q2"]))
        ga = jax.grad(actor_loss)(state["actor"])
        (q1, q2), opt_q = adam((state["q1"], state["q2"]), gq, state["opt_q"])
        pol, opt_a = adam(state["actor"], ga, state["opt_a"])
        blend = lambda old, new: jax.tree.map(lambda a, b: (1 - tau) * a + tau * b, old, new)
        return {"actor": pol, "q1": q1, "q2": q2, "opt_q": opt_q, "opt_a": opt_a,
                "actor_t": blend(state["actor_t"], pol), "q1_t": blend(state["q1_t"], q1),
                "q2_t": blend(state["q2_t"], q2)}, loss

    keys = jax.random.split(jax.random.key(0), 6)
    copy = lambda tree: jax.tree.map(jnp.array, tree)
    pol = init_mlp(keys[0], (OBS, width, width, width, ACT))
    q1 = init_mlp(keys[1], (OBS + ACT, width, width, width, 1))
    q2 = init_mlp(keys[2], (OBS + ACT, width, width, width, 1))
    state = {"actor": pol, "q1": q1, "q2": q2, "opt_q": fresh((q1, q2)), "opt_a": fresh(pol),
             "actor_t": copy(pol), "q1_t": copy(q1), "q2_t": copy(q2)}
    memory = {"obs": jax.random.normal(keys[3], (capacity, OBS)),
              "act": jnp.zeros((capacity, ACT)), "rew": jnp.zeros((capacity,)),
              "next": jax.random.normal(keys[4], (capacity, OBS))}

    class Agent:
        def __init__(self):
            self.state, self.memory = state, memory
            self.env = 0.5 * jax.random.normal(keys[5], (n_env, OBS))
            self.cursor, self.count = 0, 0
            self.root = jax.random.key(42)
            self.loss = None
            self.history = []

        def step(self):
            key = jax.random.fold_in(self.root, self.count)
            self.env, self.memory = collect(self.state["actor"], self.env, self.memory, self.cursor, key)
            self.cursor = (self.cursor + n_env) % (capacity - n_env)
            self.state, self.loss = learn(self.state, self.memory, key)
            self.count += 1
            if self.count % 10 == 0:
                self.history.append(float(self.loss))

        def finish(self):
            jax.block_until_ready((self.state, self.memory))

    return Agent()


def main():
    args = parse_args()
    import os
    os.environ.setdefault("JAX_PLATFORMS", args.device)
    import jax
    agent = build(args)
    for _ in range(WARMUP):
        agent.step()
    agent.finish()
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        agent.step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    agent.finish()
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        with jax.profiler.trace(args.trace):
            for _ in range(6):
                agent.step()
            agent.finish()


if __name__ == "__main__":
    main()
