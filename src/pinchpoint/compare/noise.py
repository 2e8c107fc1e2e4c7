"""Whether a change is more than steps differ by themselves, judged from all values of both sides.

Hodges and Lehmann's shift: the differences of every value of B to every value of A, and the two of
them between which the true shift lies with 95 % (the Mann-Whitney test, inverted). A step of a
second among steps of 8 ms moves a mean and its error, and neither of these.
"""

from functools import lru_cache
from math import comb, floor, sqrt

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Floats, Ints

FEWEST_STEPS = 2  # a side with one value shows no spread at all
TAIL = 0.025  # on each side of a 95 % interval
NORMAL_FROM = 20  # values a side: the normal limit is then exact to a rank in a hundred
NORMAL_QUANTILE = 1.959964  # of 1 - TAIL
MOST_VALUES = 1000  # of a side; of more, as many evenly spaced order statistics


@dataclass(frozen=True)
class Noise:
    """``interval_ns`` is None where so few values have none, though they may still be apart."""

    interval_ns: tuple[int, int] | None  # of B less A, 95 %
    sure: bool | None  # it is more than noise; None: too few values, or too few of them, to tell

    @property
    def half_ns(self) -> int | None:
        """Half the width of the interval."""
        if self.interval_ns is None:
            return None
        low, high = self.interval_ns
        return (high - low + 1) // 2


def noise(a: Ints, b: Ints) -> Noise:
    """Of one quantity in each complete step of both sides, in any order.

    It knows only what varies from step to step inside each recording.
    """
    if min(len(a), len(b)) < FEWEST_STEPS:
        return Noise(None, None)
    rank = rank_from_below(len(a), len(b))
    if rank == 0:
        return Noise(None, _far_apart(a, b) or None)
    left, right = _thinned(a), _thinned(b)
    shifts = np.sort((right[None, :] - left[:, None]).ravel())
    at = max(round(rank * len(shifts) / (len(a) * len(b))), 1)
    low, high = int(shifts[at - 1]), int(shifts[len(shifts) - at])
    if low > 0 or high < 0:
        return Noise((low, high), True)
    return Noise((low, high), None if _means_are_apart(a, b) else False)


def _far_apart(a: Ints, b: Ints) -> bool:
    """Whether the gap between both sides is wider than what both span together.

    Two or three values a side allow no test at 5 %, and 33 against 515 ms need none.
    """
    gap = max(int(b.min()) - int(a.max()), int(a.min()) - int(b.max()))
    return gap > int(np.ptp(a)) + int(np.ptp(b))


def _means_are_apart(a: Ints, b: Ints) -> bool:
    """Whether the mean of one side is beyond all values of the other: a few long steps make it so,
    and what most steps do does not show it."""
    sides = ((a, b), (b, a))
    return any(not x.min() <= y.mean() <= x.max() for x, y in sides)


def _thinned(values: Ints) -> Ints:
    ordered = np.sort(values)
    if len(ordered) <= MOST_VALUES:
        return ordered
    at = np.round(np.linspace(0, len(ordered) - 1, MOST_VALUES)).astype(np.int64)
    chosen: Ints = ordered[at]
    return chosen


@lru_cache(maxsize=1 << 10)
def rank_from_below(n: int, m: int) -> int:
    """How many of the ``n m`` differences lie below the interval, and one more; 0: there is none.

    The largest k with P(U < k) <= TAIL, for U of Mann and Whitney: 1 for 4 against 4.
    """
    if max(n, m) > NORMAL_FROM:
        wide = NORMAL_QUANTILE * sqrt(n * m * (n + m + 1) / 12)
        return max(floor(n * m / 2 - wide), 0)
    ways, below, k = _ways(n, m), 0, 0
    most = TAIL * comb(n + m, n)
    while below + ways[k] <= most:
        below += ways[k]
        k += 1
    return k


def chance(a: Floats, b: Floats) -> float:
    """How likely two sides of one origin are so far apart, by ranks; for a hundred values or so."""
    above = float(np.sum(b[None, :] > a[:, None]) + np.sum(b[None, :] == a[:, None]) / 2)
    extreme = floor(min(above, len(a) * len(b) - above))
    ways = _ways(len(a), len(b))
    return min(2 * sum(ways[: extreme + 1]) / comb(len(a) + len(b), len(a)), 1.0)


@lru_cache(maxsize=1 << 10)
def _ways(n: int, m: int) -> list[int]:
    """In how many orders of n and m values U takes each value: Gauss's binomial, coefficients."""
    ways = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        for at in range(n * m, m + i - 1, -1):
            ways[at] -= ways[at - m - i]
        for at in range(i, n * m + 1):
            ways[at] += ways[at - i]
    return ways
