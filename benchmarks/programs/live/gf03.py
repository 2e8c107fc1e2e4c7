"""Fits a neural surrogate of a soft actuator to displacements and sensitivities (JAX)."""
import argparse
import json
import os
import statistics
import sys
import time

PROGRAM = "gf03"
CHOICES = ["slow", "fixed"]
DEFAULT_STEPS = 4000
WARMUP = 4


def parse_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--variant", choices=CHOICES, default=CHOICES[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=DEFAULT_STEPS)
    p.add_argument("--max-seconds", type=float, default=42.0)
    p.add_argument("--trace", default=None)
    return p.parse_args()


args = parse_args()
if args.device == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402


def init_params(key, sizes):
    params = []
    for fan_in, fan_out in zip(sizes[:-1], sizes[1:]):
        key, sub = jax.random.split(key)
        params.append({"w": jax.random.normal(sub, (fan_in, fan_out)) / np.sqrt(fan_in), "b": jnp.zeros((fan_out,))})
    return params


def surrogate(params, pressures):
    h = pressures
    for layer in params[:-1]:
        h = jnp.tanh(h @ layer["w"] + layer["b"])
    return h @ params[-1]["w"] + params[-1]["b"]


def reference(basis, pressures):
    """Closed-form displacement of the measured actuator and its sensitivity to the chamber pressures."""
    phase = pressures @ basis["mix"]
    disp = jnp.sin(phase) @ basis["modes"]
    sens = jnp.einsum("bm,cm,mo->boc", jnp.cos(phase), basis["mix"], basis["modes"])
    return disp, sens


def make_sensitivity(variant):
    differentiate = jax.jacrev if variant == "slow" else jax.jacfwd

    def sensitivity(params, pressures):
        single = differentiate(lambda u: surrogate(params, u))
        return jax.vmap(single)(pressures)

    return sensitivity


def make_loss(basis, sensitivity, weight=0.1):
    def loss_fn(params, pressures):
        disp, sens = reference(basis, pressures)
        fit = jnp.mean((surrogate(params, pressures) - disp) ** 2)
        slope = jnp.mean((sensitivity(params, pressures) - sens) ** 2)
        return fit + weight * slope, {"fit": fit, "slope": slope}

    return loss_fn


def adam_init(params):
    zeros = lambda: jax.tree.map(jnp.zeros_like, params)  # noqa: E731
    return {"m": zeros(), "v": zeros(), "t": jnp.zeros((), jnp.int32)}


def adam_update(params, grads, state, lr=1e-3, b1=0.9, b2=0.999, eps=1e-8):
    t = state["t"] + 1
    m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state["m"], grads)
    v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state["v"], grads)
    scale = lr * jnp.sqrt(1 - b2 ** t.astype(jnp.float32)) / (1 - b1 ** t.astype(jnp.float32))
    params = jax.tree.map(lambda p, m, v: p - scale * m / (jnp.sqrt(v) + eps), params, m, v)
    return params, {"m": m, "v": v, "t": t}


class Fitter:
    def __init__(self, variant, chambers, outputs, width, batch):
        self.rng = np.random.default_rng(3)
        key = jax.random.PRNGKey(0)
        basis = {"mix": jax.random.normal(key, (chambers, 24)),
                 "modes": jax.random.normal(jax.random.fold_in(key, 1), (24, outputs)) / 5.0}
        self.params = init_params(jax.random.fold_in(key, 2), [chambers, width, width, width, outputs])
        self.opt_state = adam_init(self.params)
        self.batch, self.chambers = batch, chambers
        self.curve = []
        loss_fn = make_loss(basis, make_sensitivity(variant))

        def update(params, opt_state, pressures):
            (_, aux), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, pressures)
            params, opt_state = adam_update(params, grads, opt_state)
            return params, opt_state, aux

        self.update = jax.jit(update, donate_argnums=(0, 1))
        self.count = 0

    def step(self):
        pressures = self.rng.uniform(-1, 1, (self.batch, self.chambers)).astype(np.float32)
        self.params, self.opt_state, aux = self.update(self.params, self.opt_state, pressures)
        aux["fit"].block_until_ready()
        self.count += 1
        if self.count % 100 == 0:
            self.curve.append({k: float(v) for k, v in aux.items()})


def main():
    small = args.device == "cpu"
    fitter = Fitter(args.variant, chambers=8, outputs=24 if small else 96, width=32 if small else 512,
                    batch=16 if small else 4096)
    for _ in range(WARMUP):
        fitter.step()
    laps, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        fitter.step()
        now = time.perf_counter()
        laps.append((now - last) * 1e3)
        last = now
        if args.max_seconds is not None and now - start > args.max_seconds:
            break
    total = (time.perf_counter() - start) * 1e3
    print(json.dumps({"program": PROGRAM, "variant": args.variant, "steps": len(laps),
                      "step_ms_mean": round(total / len(laps), 3),
                      "step_ms_median": round(statistics.median(laps), 3)}), flush=True)
    if args.trace:
        with jax.profiler.trace(args.trace):
            for _ in range(4):
                fitter.step()


if __name__ == "__main__":
    sys.exit(main())
