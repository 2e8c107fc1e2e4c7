"""What a number of pairs can see: smallest detectable effect, pairs needed; many tests at once."""

from collections.abc import Sequence
from functools import cache
from math import expm1, log1p, sqrt

from pinchpoint.bench.statistics.distributions import noncentral_t_upper_tail, t_quantile

ALPHA = 0.01  # of ab/decision.py, which this plans for
POWER = 0.95  # of finding a true change
MOST_PAIRS = 400  # nobody waits for more


def power_of(effect_log: float, sd_log: float, pairs: int, alpha: float = ALPHA) -> float:
    """Chance that a one-sided paired t test at ``alpha`` sees a true effect (log ratio)."""
    critical = t_quantile(1 - alpha, pairs - 1)
    return noncentral_t_upper_tail(critical, pairs - 1, effect_log / (sd_log / sqrt(pairs)))


def pairs_needed(
    effect_ratio: float, sd_log: float, *, alpha: float = ALPHA, power: float = POWER
) -> int | None:
    """Pairs to see a slow-down of ``effect_ratio`` (0.03 for 3 %); None if over 400.

    ``sd_log`` is the standard deviation of the log ratio of a pair, from an A/A calibration.
    """
    if sd_log <= 0:
        return 3
    effect = log1p(effect_ratio)
    low, high = 2, 3
    while power_of(effect, sd_log, high, alpha) < power:
        low, high = high, high * 2
        if low >= MOST_PAIRS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        enough = power_of(effect, sd_log, middle, alpha) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high if high <= MOST_PAIRS else None


def smallest_visible(
    sd_log: float, pairs: int, *, alpha: float = ALPHA, power: float = POWER
) -> float:
    """The smallest slow-down (ratio - 1) that this many pairs see with probability ``power``."""
    return expm1(_visible_sds(pairs, alpha, power) * sd_log)


@cache
def _visible_sds(pairs: int, alpha: float, power: float) -> float:
    """The same in units of the standard deviation of a pair."""
    low, high = 0.0, 1.0
    while power_of(high, 1.0, pairs, alpha) < power:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        enough = power_of(middle, 1.0, pairs, alpha) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the given order; valid under any dependence.

    For many tests at once: forty at 1 % would give a false alarm in a third of all sessions.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = running
    return adjusted
