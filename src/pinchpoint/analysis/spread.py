"""The few numbers that say how values are spread."""

from dataclasses import dataclass

import numpy as np

from pinchpoint.trace.arrays import Ints


@dataclass(frozen=True)
class Spread:
    """Each number is one of the values, in their unit: no interpolation between two of them."""

    count: int
    least: int
    median: int  # of an even number the lower one
    p90: int  # nine of ten do not exceed it
    most: int


def spread(values: Ints) -> Spread | None:
    """The spread of any values; None of none."""
    n = len(values)
    if not n:
        return None
    ordered = np.sort(values)
    at = (0, (n - 1) // 2, -(-9 * n // 10) - 1, n - 1)
    return Spread(n, *(int(ordered[i]) for i in at))
