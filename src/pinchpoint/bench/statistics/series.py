"""What a series of step times looks like: its warm-up, its memory, its spikes, its modes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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


def find_warm_up(series: Values) -> WarmUp:
    """Split a whole series of durations into warm-up and steady part.

    The reference is the median of the later half. Warm-up ends with the first window of ten
    (a fifth of a short series) whose median and first value are as the reference. It has not
    converged if no window in the first half is, or if the steady part still drifts by over 10 %.
    """
    n = len(series)
    if n < 4:
        return WarmUp(0, False)
    window = max(2, min(STEADY_WINDOW, n // 5))
    later = series[n // 2 :]
    reference = float(np.median(later))
    noise = MAD_TO_SD * mad(later)
    near = max(STEADY_TOLERANCE * reference, 2.0 * noise / np.sqrt(window))
    first_near = max(2 * near, 3.0 * noise)
    for start in range(n // 2 + 1):
        middle = float(np.median(series[start : start + window]))
        if abs(middle - reference) <= near and abs(series[start] - reference) <= first_near:
            return WarmUp(start, not _drifts(series[start:]))
    return WarmUp(n // 2, False)


def _drifts(steady: Values) -> bool:
    third = len(steady) // 3
    if third < 2:
        return False
    first, last = np.median(steady[:third]), np.median(steady[-third:])
    return bool(abs(first / last - 1) > DRIFT_TOLERANCE)
