"""Population pharmacokinetics: damped Gauss-Newton fits of a four-state model, one cohort at a time (JAX)."""
import argparse
import json
import statistics
import time
import jax
import jax.numpy as jnp
import numpy as np

PROGRAM = "gj03"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 1500
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    return p.parse_args()


def rates(state, theta):
    ka, ke, k12, k21, keo, vmax = theta
    gut, central, side, effect = state
    loss = ke * central + vmax * central / (0.5 + jnp.abs(central))
    return jnp.stack([-ka * gut,
                      ka * gut - loss - k12 * central + k21 * side,
                      k12 * central - k21 * side,
                      keo * (central - effect)])


def predict(log_theta, samples, dt):
    theta = jnp.exp(log_theta)

    def rk4(state, _):
        k1 = rates(state, theta)
        k2 = rates(state + 0.5 * dt * k1, theta)
        k3 = rates(state + 0.5 * dt * k2, theta)
        k4 = rates(state + dt * k3, theta)
        state = state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return state, state[1] + 0.2 * state[3]

    start = jnp.array([5.0, 0.0, 0.0, 0.0])
    return jax.lax.scan(rk4, start, None, length=samples)[1]


def build_update(variant, samples, dt):
    jacobian = jax.jacfwd if variant == "fixed" else jax.jacrev

    def curve(p):
        return predict(p, samples, dt)

    def one(p, y):
        f = curve(p)
        j = jacobian(curve)(p)
        r = f - y
        a = j.T @ j
        g = j.T @ r
        return a + 1e-2 * jnp.diag(jnp.diag(a)) + 1e-4 * jnp.eye(p.shape[0]), g, 0.5 * jnp.mean(r * r)

    @jax.jit
    def update(p, y):
        a, g, cost = jax.vmap(one)(p, y)
        d = jnp.linalg.solve(a, g[..., None])[..., 0]
        return p - jnp.clip(d, -0.3, 0.3), cost.mean()

    def observe(key, mean, people):
        k1, k2 = jax.random.split(key)
        truth = mean + 0.3 * jax.random.normal(k1, (people, mean.shape[0]))
        clean = jax.vmap(curve)(truth)
        return clean + 0.02 * jax.random.normal(k2, clean.shape)

    return update, jax.jit(observe, static_argnums=2)


class Study:
    """Draws a fresh cohort every `rounds` updates and fits it from the population mean."""

    def __init__(self, variant, people, samples, rounds=10):
        self.mean = jnp.log(jnp.array([1.2, 0.2, 0.3, 0.25, 0.6, 0.15]))
        self.update, self.observe = build_update(variant, samples, 12.0 / samples)
        self.people, self.rounds = people, rounds
        self.key = jax.random.key(0)
        self.at = 0
        self.history = []

    def step(self):
        if self.at % self.rounds == 0:
            self.key, sub = jax.random.split(self.key)
            self.data = self.observe(sub, self.mean, self.people)
            self.p = jnp.tile(self.mean, (self.people, 1))
        self.p, cost = self.update(self.p, self.data)
        self.history.append(float(cost))
        self.at += 1


def main():
    args = parse_args()
    if args.device == "cpu":
        jax.config.update("jax_platforms", "cpu")
    big = args.device == "cuda"
    study = Study(args.variant, 8192 if big else 8, 256 if big else 16)
    for _ in range(WARMUP):
        study.step()
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        study.step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    print(f"# cost {np.mean(study.history[-10:]):.5f}", flush=True)
    if args.trace:
        with jax.profiler.trace(args.trace):
            for _ in range(4):
                study.step()


if __name__ == "__main__":
    main()
