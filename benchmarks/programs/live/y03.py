"""NeRF training in JAX: all pixels' rays live on the device, every step draws a batch of them."""
import argparse
import json
import statistics
import time

import numpy as np


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=["slow", "fixed"], default="slow")
    p.add_argument("--device", default="cuda")
    p.add_argument("--steps", type=int, default=450)
    p.add_argument("--max-seconds", type=float, default=1e9)
    p.add_argument("--trace")
    args = p.parse_args()
    import jax
    jax.config.update("jax_platforms", args.device)
    train(args)


def draw_pixels(key, total, count):
    import jax
    return jax.random.choice(key, total, (count,), replace=False)


def draw_pixels_iid(key, total, count):
    import jax
    return jax.random.randint(key, (count,), 0, total)


def train(args):
    import jax
    import jax.numpy as jnp
    cuda = args.device == "cuda"
    views, side, batch, samples, width, depth = (75, 800, 8192, 96, 256, 8) if cuda else (2, 32, 32, 8, 16, 8)
    total = views * side * side
    dtype = jnp.bfloat16 if cuda else jnp.float32
    pick = {"slow": draw_pixels, "fixed": draw_pixels_iid}[args.variant]
    skip = depth // 2

    @jax.jit
    def make_scene(key):
        k1, k2, k3, k4 = jax.random.split(key, 4)
        origins = 4.0 * jax.random.normal(k1, (views, 3))
        dirs = jax.random.normal(k2, (total, 3), jnp.float32)
        dirs = dirs / jnp.linalg.norm(dirs, axis=-1, keepdims=True)
        return origins, dirs, jax.random.uniform(k3, (total, 3))

    def posenc(x, n):
        y = x[..., None, :] * (2.0 ** jnp.arange(n))[:, None]
        y = y.reshape(*x.shape[:-1], -1)
        return jnp.concatenate([x, jnp.sin(y), jnp.cos(y)], -1)

    n_pos, n_dir = 3 + 60, 3 + 24

    def init(key):
        def dense(key, i, o):
            return {"w": jax.random.normal(key, (i, o)) * (2.0 / i) ** 0.5, "b": jnp.zeros((o,))}
        keys = iter(jax.random.split(key, depth + 4))
        trunk = []
        for i in range(depth):
            fan = n_pos if i == 0 else width + (n_pos if i == skip else 0)
            trunk.append(dense(next(keys), fan, width))
        return {"trunk": trunk, "sigma": dense(next(keys), width, 1), "feat": dense(next(keys), width, width),
                "view": dense(next(keys), width + n_dir, width // 2), "rgb": dense(next(keys), width // 2, 3)}

    def apply(layer, x):
        return x @ layer["w"].astype(dtype) + layer["b"].astype(dtype)

    def field(params, pts, dirs):
        x = posenc(pts, 10).astype(dtype)
        h = x
        for i, layer in enumerate(params["trunk"]):
            if i == skip:
                h = jnp.concatenate([h, x], -1)
            h = jax.nn.relu(apply(layer, h))
        sigma = jax.nn.softplus(apply(params["sigma"], h).astype(jnp.float32))[..., 0]
        d = jnp.broadcast_to(posenc(dirs, 4)[:, None].astype(dtype), (*pts.shape[:2], n_dir))
        h = jnp.concatenate([apply(params["feat"], h), d], -1)
        h = jax.nn.relu(apply(params["view"], h))
        return sigma, jax.nn.sigmoid(apply(params["rgb"], h).astype(jnp.float32))

    def render_loss(params, key, o, d, target):
        edges = jnp.linspace(2.0, 6.0, samples + 1)
        t = edges[:-1] + jax.random.uniform(key, (batch, samples)) * (4.0 / samples)
        sigma, rgb = field(params, o[:, None] + t[..., None] * d[:, None], d)
        tau = sigma * (4.0 / samples)
        trans = jnp.exp(-(jnp.cumsum(tau, -1) - tau))
        weights = trans * (1.0 - jnp.exp(-tau))
        color = jnp.sum(weights[..., None] * rgb, -2)
        return jnp.mean((color - target) ** 2)

    def train_step(state, scene):
        params, mu, nu, count, key = state
        origins, dirs, colors = scene
        key, k_pix, k_t = jax.random.split(key, 3)
        idx = pick(k_pix, total, batch)
        rays = origins[idx // (side * side)], dirs[idx], colors[idx]
        loss, grads = jax.value_and_grad(render_loss)(params, k_t, *rays)
        count = count + 1
        mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mu, grads)
        nu = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, nu, grads)
        c1, c2 = 1 - 0.9 ** count, 1 - 0.99 ** count
        params = jax.tree.map(lambda w, m, v: w - 5e-4 * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), params, mu, nu)
        return (params, mu, nu, count, key), loss

    step = jax.jit(train_step, donate_argnums=0)
    scene = make_scene(jax.random.key(0))
    params = init(jax.random.key(1))
    zeros = lambda: jax.tree.map(jnp.zeros_like, params)
    state = (params, zeros(), zeros(), jnp.zeros((), jnp.float32), jax.random.key(2))

    pending = []
    history = []

    def one():
        nonlocal state
        state, loss = step(state, scene)
        pending.append(loss)
        if len(pending) > 4:
            history.append(float(pending.pop(0)))

    for _ in range(6):
        one()
    jax.block_until_ready(state)
    times, start = [], time.perf_counter()
    last = start
    for _ in range(args.steps):
        one()
        now = time.perf_counter()
        times.append(now - last)
        last = now
        if now - start > args.max_seconds:
            break
    jax.block_until_ready(state)
    mean = (time.perf_counter() - start) / len(times)
    assert np.isfinite(history).all()
    print(json.dumps({"program": "y03", "variant": args.variant, "steps": len(times),
                      "step_ms_mean": round(1e3 * mean, 3),
                      "step_ms_median": round(1e3 * statistics.median(times), 3)}), flush=True)

    if args.trace:
        for _ in range(2):
            one()
        jax.block_until_ready(state)
        with jax.profiler.trace(args.trace):
            for i in range(4):
                with jax.profiler.StepTraceAnnotation("train", step_num=i):
                    one()
            jax.block_until_ready(state)


if __name__ == "__main__":
    main()
