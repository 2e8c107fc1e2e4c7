"""JAX without annotations: batches are made in Python."""

import math
import sys

import jax
import jax.numpy as jnp

SLOW = "make_batch"


@jax.jit
def step(weights, batch):
    """One step of descent."""
    return weights - 0.1 * jax.grad(lambda w: jnp.mean((batch @ w) ** 2))(weights)


def make_batch(number):
    """Value by value."""
    return jnp.array([[math.sin(number * i + j) for j in range(64)] for i in range(16)])


weights = jnp.ones((64, 64))
for number in range(4 * int(sys.argv[1])):
    weights = step(weights, make_batch(number))
weights.block_until_ready()
