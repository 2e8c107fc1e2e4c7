"""Intervals that keep their promise on step times: skewed, spiky, autocorrelated.

In a simulation of 300 to 5000 AR(1) steps with 1 % spikes, nominal 95 % intervals for the median
covered 93 to 96 % by batch medians (phi up to 0.7; 93 % at 0.9), and 35 to 66 % by the iid
bootstrap: so a run's median gets batch medians.
"""

from collections.abc import Callable
from math import exp, sqrt

import numpy as np
from numpy.typing import NDArray

from pinchpoint.bench.statistics.distributions import binomial_cdf, t_quantile

Values = NDArray[np.float64]
Interval = tuple[float, float]

BATCHES = 10  # few, so that each is long; enough for an interval of 95 %
BATCH_METHOD = f"batch_medians_{BATCHES}"
WIDEST_OF = (3, 5, 10)  # batches; fewer are longer, and see slower drift
BATCHES_ALIKE = 0.3  # correlation; ten unrelated batches reach it in 8 % of the cases
WIDEST_METHOD = "batch_medians_" + "_".join(map(str, WIDEST_OF))


def batch_median_interval(series: Values, confidence: float = 0.95) -> Interval | None:
    """Interval for the median of one run's durations, in their order of time.

    Ten contiguous batches, and a t interval of their medians around the overall median, on a log
    scale so that a duration's interval stays positive. None below two values a batch.
    """
    if len(series) < 2 * BATCHES or series.min() <= 0:
        return None
    return _around_median(series, _half_width_log(series, BATCHES, confidence))


def widest_batch_interval(
    series: Values, confidence: float = 0.95, least_ratio: float = 0.0
) -> Interval | None:
    """The widest of the intervals from 3, 5 and 10 batches, for a median that was measured until
    it looked precise.

    Looking again and again, and stopping when the interval happens to be narrow, makes intervals
    too short, the more so the longer neighbours stay alike. Long batches see slow changes, many
    batches see quick ones; ``benchmarks/micro_intervals.py`` measures the coverage. The half width
    is at least ``least_ratio`` of the median: what the clock cannot tell.
    """
    if len(series) < 2 * max(WIDEST_OF) or series.min() <= 0:
        return None
    half = max(_half_width_log(series, batches, confidence) for batches in WIDEST_OF)
    return _around_median(series, max(half, least_ratio))


def neighbouring_batches_alike(series: Values) -> bool:
    """Whether the series is too short for its slow changes: its batch medians still remember their
    neighbours. Then the spread of the batches says less than it should."""
    logs = np.log([np.median(part) for part in np.array_split(series, BATCHES)])
    centred = logs - logs.mean()
    energy = float((centred**2).sum())
    return energy > 0 and float((centred[1:] * centred[:-1]).sum()) > BATCHES_ALIKE * energy


def _half_width_log(series: Values, batches: int, confidence: float) -> float:
    logs = np.log([np.median(part) for part in np.array_split(series, batches)])
    t = t_quantile(0.5 + confidence / 2, batches - 1)
    return t * float(logs.std(ddof=1)) / sqrt(batches)


def _around_median(series: Values, half: float) -> Interval:
    middle = float(np.median(series))
    return middle * exp(-half), middle * exp(half)


def quantile_interval(values: Values, q: float, confidence: float = 0.95) -> Interval | None:
    """Distribution-free interval of a quantile from order statistics; None if n is too small.

    The interval runs from the l-th to the u-th smallest value, with l and u such that
    P(X < l) <= (1 - confidence) / 2 and P(X >= u) <= the same for X binomial(n, q). It assumes
    independent values; requests are, steps are only roughly.
    """
    ranks = quantile_ranks(len(values), q, confidence)
    if ranks is None:
        return None
    ordered = np.sort(values)
    return float(ordered[ranks[0] - 1]), float(ordered[ranks[1] - 1])


def quantile_bounds(
    values: Values, q: float, confidence: float = 0.95
) -> tuple[float | None, float | None]:
    """Between what a quantile is, at any count: the two-sided interval where there is one.

    Of fewer values one side is open: *at least* (or, of a low quantile, *at most*) so much, at the
    same confidence on that side alone. Both are None without values, or if even that is open.
    """
    both = quantile_interval(values, q, confidence)
    if both is not None or not len(values):
        return both or (None, None)
    n, tail, ordered = len(values), 1.0 - confidence, np.sort(values)
    low = _last(lambda rank: binomial_cdf(rank - 1, n, q) <= tail, n)
    if q >= 0.5:
        return (float(ordered[low - 1]) if low else None), None
    back = _last(lambda count: 1.0 - binomial_cdf(n - count, n, q) <= tail, n)
    return None, (float(ordered[n - back]) if back else None)


def quantile_ranks(n: int, q: float, confidence: float = 0.95) -> tuple[int, int] | None:
    """The ranks (1 to n) of ``quantile_interval``; None if no such interval exists."""
    tail = (1.0 - confidence) / 2
    low = _last(lambda rank: binomial_cdf(rank - 1, n, q) <= tail, n)
    high = n + 1 - _last(lambda back: 1.0 - binomial_cdf(n - back, n, q) <= tail, n)
    if low < 1 or high > n:
        return None
    return low, high


def _last(holds: Callable[[int], bool], n: int) -> int:
    """The largest rank from 1 to n for which a falling condition holds, or 0."""
    low, high = 0, n
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def least_count(q: float, confidence: float = 0.95) -> int:
    """How many values a two-sided interval of this quantile needs: 6, 36, 72 and 368 for the
    50th, 90th, 95th and 99th percentile."""
    n = 2
    while quantile_ranks(n, q, confidence) is None:
        n += 1 if n < 100 else max(1, n // 100)
    while quantile_ranks(n - 1, q, confidence) is not None:
        n -= 1
    return n


def mean_interval(values: Values, confidence: float = 0.95) -> Interval | None:
    """Student t interval of a mean of independent values (runs, pairs); None below two."""
    n = len(values)
    if n < 2:
        return None
    half = t_quantile(0.5 + confidence / 2, n - 1) * float(values.std(ddof=1)) / sqrt(n)
    middle = float(values.mean())
    return middle - half, middle + half
