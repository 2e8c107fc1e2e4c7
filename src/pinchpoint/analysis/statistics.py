"""Means and medians over the values that are known; nan where none is."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Floats, Ints

# ------------------------------------------------------------------------------------------------
# Exact means of integer parts: what is lost in rounding goes where most of it came from.


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


# ------------------------------------------------------------------------------------------------
# The few numbers that say how values are spread.


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


def percentile(values: ArrayLike, percent: float) -> float:
    """As ``np.percentile`` has it; that imports the masked arrays of NumPy, which takes 12 ms."""
    ordered = np.sort(np.asarray(values))
    at = (len(ordered) - 1) * (percent / 100)
    below, share = int(at), at - int(at)
    low, high = ordered[below].item(), ordered[min(below + 1, len(ordered) - 1)].item()
    far = high - low
    return float(high - far * (1 - share) if share >= 0.5 else low + far * share)


def median(values: Iterable[float]) -> float:
    """As ``statistics.median``, whose module takes 5 ms to import: fractions, decimals."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


# ------------------------------------------------------------------------------------------------
# Means and medians over the values that are known; nan where none is.


def median_of_ranks(values: Floats) -> Floats:
    """Median of each column of a matrix (ranks, steps)."""
    out = np.full(values.shape[1:], np.nan)
    some = (~np.isnan(values)).any(axis=0)
    if some.any():
        out[some] = np.nanmedian(values[:, some], axis=0)
    return out


def mean_of_ranks(values: Floats) -> Floats:
    """Mean of each column."""
    out = np.full(values.shape[1:], np.nan)
    some = (~np.isnan(values)).any(axis=0)
    if some.any():
        out[some] = np.nanmean(values[:, some], axis=0)
    return out


def mean_of_steps(values: Floats) -> Floats:
    """Mean of each row."""
    return mean_of_ranks(values.T)


def mean(values: Floats) -> float:
    """Mean of everything that is known; 0 where nothing is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else 0.0


def lower_median_of_ranks(values: Floats) -> Floats:
    """The value of each column that half of the known ones, rounded up, do not exceed."""
    ordered = np.sort(values, axis=0)  # nan comes last
    count = (~np.isnan(values)).sum(axis=0)
    middle = np.maximum(count - 1, 0) // 2
    out: Floats = np.take_along_axis(ordered, middle[None, :], axis=0)[0]
    return out


# ------------------------------------------------------------------------------------------------
# Steps that come in bursts.

BURST_PERCENTILE = 95  # a round of 16 workers makes one step in 16 wait for all of them
BURST_RATIO = 3.0  # of the median; steps that vary by themselves stay below it


def in_bursts(timed: Sequence[int]) -> bool:
    """Whether long steps come so often that they are part of what a step usually costs."""
    late = np.percentile(timed, BURST_PERCENTILE, method="lower")
    return bool(late > BURST_RATIO * np.median(timed))
