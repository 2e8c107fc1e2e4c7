"""JAX: supervised training of a large vision transformer; the loss is read at every step for the divergence guard."""
import argparse
import functools
import json
import math
import os
import statistics
import time

PROGRAM = "o12"
CHOICES = ["healthy"]
DEFAULT_STEPS = 70
WARMUP = 4


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
import numpy as np


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


def init_params(key, cfg):
    d, f = cfg["dim"], 4 * cfg["dim"]
    patch = cfg["patch"] ** 2 * 3

    def dense(k, a, b):
        return {"w": jax.random.normal(k, (a, b), jnp.float32) * a ** -0.5, "b": jnp.zeros((b,), jnp.float32)}

    def norm():
        return {"g": jnp.ones((d,), jnp.float32), "b": jnp.zeros((d,), jnp.float32)}

    keys = iter(jax.random.split(key, 4 * cfg["layers"] + 3))
    blocks = [{"n1": norm(), "n2": norm(), "qkv": dense(next(keys), d, 3 * d), "out": dense(next(keys), d, d),
               "up": dense(next(keys), d, f), "down": dense(next(keys), f, d)} for _ in range(cfg["layers"])]
    return {"patch": dense(next(keys), patch, d), "pos": jax.random.normal(next(keys), (cfg["tokens"], d)) * 0.02,
            "blocks": blocks, "norm": norm(), "head": dense(next(keys), d, cfg["classes"])}


def linear(p, x):
    return x @ p["w"].astype(x.dtype) + p["b"].astype(x.dtype)


def layer_norm(p, x):
    h = x.astype(jnp.float32)
    h = h - h.mean(-1, keepdims=True)
    h = h * jax.lax.rsqrt(jnp.square(h).mean(-1, keepdims=True) + 1e-6)
    return (h * p["g"] + p["b"]).astype(x.dtype)


def patchify(images, patch):
    b, h, w, c = images.shape
    x = images.reshape(b, h // patch, patch, w // patch, patch, c).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(b, (h // patch) * (w // patch), patch * patch * c)


def forward(cfg, params, images):
    x = patchify((images.astype(jnp.float32) / 127.5 - 1.0).astype(cfg["dtype"]), cfg["patch"])
    x = linear(params["patch"], x) + params["pos"].astype(cfg["dtype"])
    b, t, d = x.shape
    for p in params["blocks"]:
        q, k, v = jnp.split(linear(p["qkv"], layer_norm(p["n1"], x)).reshape(b, t, 3 * cfg["heads"], -1), 3, axis=2)
        y = jax.nn.dot_product_attention(q, k, v, implementation=cfg["attention"])
        x = x + linear(p["out"], y.reshape(b, t, d))
        x = x + linear(p["down"], jax.nn.gelu(linear(p["up"], layer_norm(p["n2"], x))))
    return linear(params["head"], layer_norm(params["norm"], x).mean(1)).astype(jnp.float32)


def loss_fn(cfg, params, images, labels):
    logp = jax.nn.log_softmax(forward(cfg, params, images))
    return -jnp.take_along_axis(logp, labels[:, None], 1).mean()


def make_train_step(cfg):
    @functools.partial(jax.jit, donate_argnums=(0,))
    def train_step(state, images, labels):
        loss, grads = jax.value_and_grad(functools.partial(loss_fn, cfg))(state["params"], images, labels)
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads)))
        clip = jnp.minimum(1.0, 1.0 / (norm + 1e-6))
        t = state["t"] + 1
        m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * clip * g, state["m"], grads)
        v = jax.tree.map(lambda a, g: 0.95 * a + 0.05 * jnp.square(clip * g), state["v"], grads)
        rate = 3e-4 * jnp.sqrt(1 - 0.95 ** t) / (1 - 0.9 ** t)
        params = jax.tree.map(lambda p, a, b: p * (1 - 3e-5) - rate * a / (jnp.sqrt(b) + 1e-8), state["params"], m, v)
        return dict(params=params, m=m, v=v, t=t), loss

    return train_step


def main(args):
    if args.device == "cuda":
        cfg = dict(dim=1280, heads=20, layers=16, patch=16, tokens=256, classes=1000, side=256, batch=128,
                   dtype=jnp.bfloat16, attention="cudnn")
    else:
        cfg = dict(dim=32, heads=2, layers=2, patch=8, tokens=16, classes=10, side=32, batch=4,
                   dtype=jnp.float32, attention=None)
    params = jax.jit(lambda k: init_params(k, cfg))(jax.random.key(0))
    zeros = lambda: jax.tree.map(jnp.zeros_like, params)
    box = {"state": dict(params=params, m=zeros(), v=zeros(), t=jnp.zeros((), jnp.float32)), "turn": 0}
    del params
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (cfg["batch"], cfg["side"], cfg["side"], 3), dtype=np.uint8) for _ in range(4)]
    labels = [rng.integers(0, cfg["classes"], (cfg["batch"],), dtype=np.int32) for _ in range(4)]
    train_step = make_train_step(cfg)

    def fetch(i):
        return jax.device_put((images[i % 4], labels[i % 4]))

    box["next"] = fetch(0)
    log = []

    def step():
        box["state"], loss = train_step(box["state"], *box["next"])
        box["turn"] += 1
        box["next"] = fetch(box["turn"])
        value = float(loss)
        if not math.isfinite(value):
            raise RuntimeError("training diverged")
        log.append(value)

    run_loop(args, step, lambda: box["state"]["t"])


if __name__ == "__main__":
    main(ARGS)
