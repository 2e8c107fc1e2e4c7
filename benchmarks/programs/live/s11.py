"""Training of a bfloat16 decoder language model in flax; donated state, one jitted update."""
import argparse
import functools
import json
import statistics
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state


def root_scale(width):
    return 1.0 / np.sqrt(width)


def power_scale(width):
    return width ** -0.5


class SelfAttention(nn.Module):
    heads: int
    scale: callable
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x):
        t, d = x.shape[1:]
        width = d // self.heads
        qkv = nn.DenseGeneral((3, self.heads, width), dtype=self.dtype, use_bias=False)(x)
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        q = q * self.scale(width)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
        causal = jnp.tril(jnp.ones((t, t), bool))
        scores = jnp.where(causal, scores, jnp.finfo(scores.dtype).min)
        probs = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(q.dtype)
        out = jnp.einsum("bhqk,bkhd->bqhd", probs, v)
        return nn.DenseGeneral(d, axis=(-2, -1), dtype=self.dtype, use_bias=False)(out)


class Block(nn.Module):
    heads: int
    scale: callable
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x):
        d = x.shape[-1]
        x = x + SelfAttention(self.heads, self.scale, self.dtype)(nn.LayerNorm(dtype=self.dtype)(x))
        h = nn.Dense(4 * d, dtype=self.dtype)(nn.LayerNorm(dtype=self.dtype)(x))
        return x + nn.Dense(d, dtype=self.dtype)(nn.gelu(h))


class Decoder(nn.Module):
    vocab: int
    dim: int
    depth: int
    heads: int
    length: int
    scale: callable
    dtype: jnp.dtype = jnp.bfloat16

    @nn.compact
    def __call__(self, ids):
        embed = nn.Embed(self.vocab, self.dim, dtype=self.dtype)
        place = self.param("place", nn.initializers.normal(0.02), (self.length, self.dim))
        x = embed(ids) + place.astype(self.dtype)
        for _ in range(self.depth):
            x = Block(self.heads, self.scale, self.dtype)(x)
        return embed.attend(nn.LayerNorm(dtype=self.dtype)(x))


@functools.partial(jax.jit, donate_argnums=0)
def update(state, ids):
    def objective(params):
        logits = state.apply_fn(params, ids[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), ids[:, 1:]).mean()

    loss, grads = jax.value_and_grad(objective)(state.params)
    return state.apply_gradients(grads=grads), loss


def build(args):
    tiny = args.device == "cpu"
    vocab, dim, depth, heads, length, batch = (128, 32, 2, 2, 16, 2) if tiny else (32000, 1024, 6, 16, 2048, 8)
    # -- variant
    scale = {"slow": root_scale, "fixed": power_scale}[args.variant]
    # --
    model = Decoder(vocab, dim, depth, heads, length, scale)
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, length), jnp.int32))
    rate = optax.warmup_cosine_decay_schedule(0.0, 3e-4, 100, 10000)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, b2=0.95, weight_decay=0.1))
    run = {"state": train_state.TrainState.create(apply_fn=model.apply, params=params, tx=tx), "n": 0, "loss": None}
    rng = np.random.default_rng(0)
    pool = [rng.integers(0, vocab, (batch, length + 1), dtype=np.int32) for _ in range(8)]

    def step():
        ids = jax.device_put(pool[run["n"] % len(pool)])
        run["n"] += 1
        run["state"], run["loss"] = update(run["state"], ids)

    return step, lambda: jax.block_until_ready(run["loss"])


def measure(program, args, step, drain):
    for _ in range(args.warmup):
        step()
    drain()
    marks = [time.perf_counter()]
    for _ in range(args.steps):
        step()
        marks.append(time.perf_counter())
        if args.max_seconds and marks[-1] - marks[0] > args.max_seconds:
            break
    drain()
    end = time.perf_counter()
    gaps = [b - a for a, b in zip(marks, marks[1:])]
    print(json.dumps({
        "program": program, "variant": args.variant, "steps": len(gaps),
        "step_ms_mean": round((end - marks[0]) * 1e3 / len(gaps), 3),
        "step_ms_median": round(statistics.median(gaps) * 1e3, 3),
    }), flush=True)
    if args.trace:
        for _ in range(2):
            step()
        drain()
        with jax.profiler.trace(args.trace):
            for i in range(4):
                with jax.profiler.StepTraceAnnotation("step", step_num=i):
                    step()
            drain()


def parse_args(variants, steps, tiny_steps=4, warmup=5):
    p = argparse.ArgumentParser()
    p.add_argument("--variant", choices=variants, default=variants[0])
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--steps", type=int, default=None)
    p.add_argument("--max-seconds", type=float, default=None)
    p.add_argument("--trace", default=None)
    args = p.parse_args()
    if args.steps is None:
        args.steps = steps[args.variant] if args.device == "cuda" else tiny_steps
    args.warmup = warmup if args.device == "cuda" else 2
    return args


if __name__ == "__main__":
    args = parse_args(["slow", "fixed"], {"slow": 120, "fixed": 190})
    jax.config.update("jax_platforms", args.device)
    step, drain = build(args)
    measure("s11", args, step, drain)
