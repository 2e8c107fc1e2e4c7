"""What a series of step times looks like: its warm-up, its memory, its spikes, its modes."""

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from pinchpoint.bench.statistics.distributions import t_upper_tail
from pinchpoint.frozen import dataclass

Values = NDArray[np.float64]

MAD_TO_SD = 1.4826  # for a normal distribution
SPIKE_FACTOR = 1.2  # a step this much longer than the median is a spike, not noise
SPIKE_SDS = 5.0  # and this far outside of the noise
MODE_GAP_SDS = 4.0  # measured: see benchmarks/decision_rules.py, bimodality
MODE_LEAST_SHARE = 0.1  # of the values in the smaller group; fewer are spikes
MODE_GAP_LEAST = 0.01  # modes closer than 1 % do not matter
STEADY_WINDOW = 10  # steps whose median one slow step does not move
STEADY_TOLERANCE = 0.03  # a window this near the later median is no longer warming up
DRIFT_TOLERANCE = 0.10  # first and last third of the steady part may differ by this
# The same two on a machine that is busy, where the CPU itself gets slower and faster by itself: the
# CPU time of a step differed by up to 14 % from run to run at load 10 on 2 CPUs.
BUSY_STEADY_TOLERANCE, BUSY_DRIFT_TOLERANCE = 0.15, 0.50


def lag1_autocorrelation(series: Values) -> float | None:
    """Correlation of neighbours, spikes clipped at the 97th percentile; None below 10 values."""
    if len(series) < 10:
        return None
    clipped = np.minimum(series, np.percentile(series, 97))
    centred = clipped - clipped.mean()
    energy = float((centred**2).sum())
    return float((centred[1:] * centred[:-1]).sum() / energy) if energy > 0 else 0.0


def effective_count(series: Values) -> float:
    """How many independent values the series is worth for its mean: n (1 - r) / (1 + r)."""
    rho = lag1_autocorrelation(series) or 0.0
    rho = min(max(rho, 0.0), 0.999)
    return len(series) * (1 - rho) / (1 + rho)


def mad(series: Values) -> float:
    """Median absolute deviation from the median."""
    return float(np.median(np.abs(series - np.median(series))))


def spikes(series: Values) -> int:
    """Steps that stick out: at least a fifth over the median, and five robust sd."""
    middle = float(np.median(series))
    limit = max(SPIKE_FACTOR * middle, middle + SPIKE_SDS * MAD_TO_SD * mad(series))
    return int((series > limit).sum())


@dataclass(frozen=True)
class Modes:
    """Two groups of values with a gap: how far apart (ratio - 1) and how many are in the upper."""

    gap_ratio: float
    low: float
    high: float
    count_low: int
    count_high: int


def two_modes(values: Values) -> Modes | None:
    """Whether the values fall into two groups, each a tenth and two of them, with a wide gap.

    The gap must be over four times the spread within the groups and over 1 %. Fewer than six
    values cannot show it.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    if len(ordered) < 6:
        return None
    least = max(2, int(np.ceil(MODE_LEAST_SHARE * len(ordered))))
    gaps = np.diff(ordered)[least - 1 : len(ordered) - least]
    cut = int(np.argmax(gaps)) + least
    low, high = ordered[:cut], ordered[cut:]
    gap = float(high[0] - low[-1])
    squares = ((low - low.mean()) ** 2).sum() + ((high - high.mean()) ** 2).sum()
    within = float(np.sqrt(squares / (len(ordered) - 2)))
    if gap <= MODE_GAP_SDS * within or gap <= MODE_GAP_LEAST * float(np.median(ordered)):
        return None
    return Modes(
        float(high.mean() / low.mean() - 1), float(low.mean()), float(high.mean()), cut, len(high)
    )


@dataclass(frozen=True)
class WarmUp:
    """How many leading values are warm-up, and whether the rest is steady."""

    count: int
    converged: bool


def find_warm_up(series: Values, *, busy: bool = False) -> WarmUp:
    """Split a whole series of durations into warm-up and steady part.

    The reference is the median of the later half. Warm-up ends with the first window of ten
    (a fifth of a short series) whose median and first value are as the reference. It has not
    converged if no window in the first half is, or if the steady part still drifts by over 10 %.
    On a ``busy`` machine both are judged mildly.
    """
    steady, drift = STEADY_TOLERANCE, DRIFT_TOLERANCE
    if busy:
        steady, drift = BUSY_STEADY_TOLERANCE, BUSY_DRIFT_TOLERANCE
    n = len(series)
    if n < 4:
        return WarmUp(0, False)
    window = max(2, min(STEADY_WINDOW, n // 5))
    later = series[n // 2 :]
    reference = float(np.median(later))
    noise = MAD_TO_SD * mad(later)
    near = max(steady * reference, 2.0 * noise / np.sqrt(window))
    first_near = max(2 * near, 3.0 * noise)
    for start in range(n // 2 + 1):
        middle = float(np.median(series[start : start + window]))
        if abs(middle - reference) <= near and abs(series[start] - reference) <= first_near:
            return WarmUp(start, not _drifts(series[start:], drift))
    return WarmUp(n // 2, False)


def _drifts(steady: Values, tolerance: float) -> bool:
    third = len(steady) // 3
    if third < 2:
        return False
    first, last = np.median(steady[:third]), np.median(steady[-third:])
    return bool(abs(first / last - 1) > tolerance)


# ------------------------------------------------------------------------------------------------
# Where the level of a history of session medians changed.
#
# Candidates come from the energy statistic of E-divisive (Matteson and James, 2014), decided by a
# t test as in Hunter (2023), which gives the same answer every time. p 0.0001 and 2 % kept false
# points under 1 % of unchanged 60-day histories, found 5 % after five points in 96 %.


P_LIMIT = 0.0001  # false points in under 1 % of unchanged histories, as said above
LEAST_CHANGE = 0.02  # the other limit of that simulation
LEAST_SEGMENT = 3  # one odd session is no new level


@dataclass(frozen=True)
class ChangePoint:
    """The first position of a new level, the levels around it, and how sure."""

    at: int
    before: float
    after: float
    change_ratio: float  # after / before - 1
    p: float


def change_points(
    values: Values, *, p_limit: float = P_LIMIT, least_change: float = LEAST_CHANGE
) -> tuple[ChangePoint, ...]:
    """The positions where the level changes, in order; levels are medians of the segments."""
    cuts = sorted(_split(np.asarray(values, np.float64), 0, p_limit))
    while cuts:
        found = _between(values, cuts)
        weak = [f for f in found if f.p > p_limit or abs(f.change_ratio) < least_change]
        if not weak:
            return tuple(found)
        cuts.remove(max(weak, key=lambda f: f.p).at)
    return ()


def _split(values: Values, offset: int, p_limit: float) -> list[int]:
    if len(values) < 2 * LEAST_SEGMENT:
        return []
    cut = _best_cut(values)
    if _p_value(values[:cut], values[cut:]) > p_limit:
        return []
    left = _split(values[:cut], offset, p_limit)
    return [*left, offset + cut, *_split(values[cut:], offset + cut, p_limit)]


def _best_cut(values: Values) -> int:
    """The cut with the greatest energy distance between the two sides."""
    n = len(values)
    distance = np.abs(values[:, None] - values[None, :])
    within = np.concatenate(([0.0], np.cumsum(np.tril(distance).sum(axis=1))))
    total = within[n]
    rows = distance.sum(axis=1)
    cuts = np.arange(LEAST_SEGMENT, n - LEAST_SEGMENT + 1)
    left = within[cuts]
    across = np.cumsum(rows)[cuts - 1] - 2 * left
    right = total - left - across
    a, b = cuts, n - cuts
    energy = 2 * across / (a * b) - 2 * left / (a * (a - 1)) - 2 * right / (b * (b - 1))
    return int(cuts[np.argmax(energy * a * b / n)])


def _p_value(a: Values, b: Values) -> float:
    """Two-sided Student t test with a pooled, unbiased variance."""
    df = len(a) + len(b) - 2
    pooled = (((a - a.mean()) ** 2).sum() + ((b - b.mean()) ** 2).sum()) / df
    shift = abs(float(a.mean() - b.mean()))
    if pooled == 0:
        return 1.0 if shift == 0 else 0.0
    return 2 * t_upper_tail(shift / (sqrt(pooled) * sqrt(1 / len(a) + 1 / len(b))), df)


def _between(values: Values, cuts: list[int]) -> list[ChangePoint]:
    edges = [0, *cuts, len(values)]
    found = []
    for start, at, end in zip(edges, edges[1:], edges[2:], strict=False):
        left, right = values[start:at], values[at:end]
        before, after = float(np.median(left)), float(np.median(right))
        found.append(ChangePoint(at, before, after, after / before - 1, _p_value(left, right)))
    return found
