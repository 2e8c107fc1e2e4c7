"""Pairs of runs, A and B, and how a measure changed in each."""

from collections.abc import Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from pinchpoint.bench.measures import Measure
from pinchpoint.bench.metrics import RunMetrics

Values = NDArray[np.float64]
Pair = tuple[RunMetrics, RunMetrics]


def good_pairs(pairs: Sequence[Pair]) -> list[Pair]:
    """Pairs of which both runs are valid; a pair is dropped as a whole."""
    return [p for p in pairs if p[0].valid and p[1].valid]


def log_ratios(pairs: Sequence[Pair], measure: Measure) -> Values:
    """ln(B / A) of each pair that has the measure, turned so that positive is worse."""
    sign = 1.0 if measure.better == "lower" else -1.0
    both = [(measure.get(a), measure.get(b)) for a, b in pairs]
    return np.array([sign * log(b / a) for a, b in both if a and b and a > 0 and b > 0])


def pair_seconds(pairs: Sequence[Pair]) -> float:
    """What a pair takes, on average; 0 without pairs."""
    return sum(map(_seconds, pairs)) / max(1, len(pairs))


def _seconds(pair: Pair) -> float:
    a_s, b_s = (run.duration_s or 0.0 for run in pair)
    return max(a_s, b_s) if pair[0].at_once else a_s + b_s
