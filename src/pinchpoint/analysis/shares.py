"""Exact means of integer parts: what is lost in rounding goes where most of it came from."""

import numpy as np

from pinchpoint.trace.arrays import Ints


def share_out(sums: Ints, n: int, total: int) -> Ints:
    """Integers close to ``sums / n`` that add up to ``total`` exactly (largest remainder).

    ``total`` must be the sum of all ``sums`` over ``n``, rounded in any direction.
    """
    low, rest = np.divmod(sums, n)
    missing = total - int(low.sum())
    if not 0 <= missing <= len(sums):
        raise ValueError(f"{total} is not the mean of {int(sums.sum())} over {n}")
    low[np.argsort(-rest, kind="stable")[:missing]] += 1
    return low


def rounded_mean(total: int, n: int) -> int:
    """``total / n`` to the nearest integer, halves up."""
    return (2 * total + n) // (2 * n)
