"""Variational fit of an overdispersed count model (gamma-Poisson) with JAX."""
import statistics
import time

import numpy as np
import scipy.special as sps

from blocks_e import base_parser

args = base_parser().parse_args()

import jax  # noqa: E402

if args.device == "cpu":
    jax.config.update("jax_platforms", "cpu")
import jax.numpy as jnp  # noqa: E402
from jax.scipy import special as jsp  # noqa: E402


def _numpy_fn(fn):
    def call(x):
        return np.asarray(fn(np.asarray(x)), dtype=np.float32)

    def wrapped(x):
        out = jax.ShapeDtypeStruct(x.shape, jnp.float32)
        return jax.pure_callback(call, out, x, vmap_method="expand_dims")

    return wrapped


@jax.custom_vjp
def lgamma_scipy(x):
    return _numpy_fn(sps.gammaln)(x)


lgamma_scipy.defvjp(
    lambda x: (lgamma_scipy(x), x),
    lambda x, g: (g * _numpy_fn(sps.digamma)(x),),
)

LGAMMA = {"slow": lgamma_scipy, "fixed": jsp.gammaln}


def init_params(key, genes, covariates):
    k1, k2 = jax.random.split(key)
    return {
        "beta": 0.01 * jax.random.normal(k1, (covariates, genes)),
        "log_disp": 0.1 * jax.random.normal(k2, (genes,)),
        "log_sd": jnp.full((genes,), -2.0),
    }


def make_step(lgamma, lr):
    def neg_elbo(params, key, x, counts):
        eps = jax.random.normal(key, params["log_disp"].shape)
        log_r = params["log_disp"] + jnp.exp(params["log_sd"]) * eps
        r = jnp.exp(log_r)[None, :]
        log_mu = x @ params["beta"]
        ll = (lgamma(counts + r) - lgamma(jnp.broadcast_to(r, (1, r.shape[1])))
              + r * (log_r[None, :] - jnp.logaddexp(log_r[None, :], log_mu))
              + counts * (log_mu - jnp.logaddexp(log_r[None, :], log_mu)))
        prior = -0.5 * jnp.sum(params["log_disp"] ** 2) + jnp.sum(params["log_sd"])
        return -(jnp.sum(ll) + prior) / counts.size

    def step(params, mom, key, x, counts):
        key, sub = jax.random.split(key)
        loss, grads = jax.value_and_grad(neg_elbo)(params, sub, x, counts)
        mom = jax.tree.map(lambda m, g: 0.9 * m + g, mom, grads)
        params = jax.tree.map(lambda p, m: p - lr * m, params, mom)
        return params, mom, key, loss

    return jax.jit(step)


def main():
    cells, genes, covariates = (16, 32, 4) if args.tiny else (256, 2048, 64)
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.standard_normal((cells, covariates)), dtype=jnp.float32)
    counts = jnp.asarray(rng.negative_binomial(2, 0.3, (cells, genes)), dtype=jnp.float32)
    key = jax.random.PRNGKey(0)
    params = init_params(key, genes, covariates)
    mom = jax.tree.map(jnp.zeros_like, params)
    step = make_step(LGAMMA[args.variant], lr=1e-2)

    for _ in range(3):
        params, mom, key, loss = step(params, mom, key, x, counts)
    jax.block_until_ready(params)
    stamps = [time.perf_counter()]
    for i in range(args.steps):
        params, mom, key, loss = step(params, mom, key, x, counts)
        if i % 20 == 0:
            print("iter %d  -elbo %.5f" % (i, float(loss)), flush=True)
        stamps.append(time.perf_counter())
    jax.block_until_ready((params, loss))
    total = time.perf_counter() - stamps[0]
    d = sorted(1e3 * (b - a) for a, b in zip(stamps, stamps[1:]))
    print("median_step_ms=%.3f mean_step_ms=%.3f p90=%.3f"
          % (statistics.median(d), 1e3 * total / len(d), d[min(len(d) - 1, int(0.9 * len(d)))]))


if __name__ == "__main__":
    main()
