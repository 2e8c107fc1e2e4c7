"""Student t, normal, binomial and noncentral t, from their textbook definitions.

The incomplete beta function is evaluated by its continued fraction (Abramowitz and Stegun,
26.5.8) with Lentz's method; quantiles by bisection, which is exact enough and cannot diverge.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import erf, exp, expm1, lgamma, log, log1p, sqrt
from statistics import NormalDist

import numpy as np

_TINY = 1e-300  # stands for zero where it would be divided by (Lentz)
_EPSILON = 1e-15  # a few times what a double tells from 1
_MAX_TERMS = 1000  # a bound for what does not converge
_GRID = 801  # points over U; the power table agrees to 4 digits with ten times as many
_NORMAL_FROM_DF = 1e7  # beyond this the t and the normal distribution agree to 7 digits


def normal_quantile(p: float) -> float:
    """z with P(Z <= z) = p."""
    return NormalDist().inv_cdf(p)


def normal_cdf(z: float) -> float:
    """P(Z <= z)."""
    return 0.5 * (1.0 + erf(z / sqrt(2.0)))


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    front = lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)
    return exp(front) * _beta_fraction(a, b, x) / a


def _beta_fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + term * d)
            c = _away_from_zero(1.0 + term / c)
            value *= c * d
        if abs(c * d - 1.0) < _EPSILON:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def t_cdf(t: float, df: float) -> float:
    """P(T <= t) for Student's t with ``df`` degrees of freedom."""
    if df > _NORMAL_FROM_DF:
        return normal_cdf(t)
    tail = 0.5 * incomplete_beta(df / 2.0, 0.5, df / (df + t * t))
    return tail if t < 0 else 1.0 - tail


def t_upper_tail(t: float, df: float) -> float:
    """P(T >= t), exact also far out where ``1 - t_cdf`` would round to 0."""
    tail = 0.5 * incomplete_beta(df / 2.0, 0.5, df / (df + t * t))
    return tail if t > 0 else 1.0 - tail


@lru_cache(maxsize=1 << 12)
def t_quantile(p: float, df: float) -> float:
    """t with P(T <= t) = p; 0 < p < 1."""
    if p < 0.5:
        return -t_quantile(1.0 - p, df)
    low, high = 0.0, 2.0
    while t_upper_tail(high, df) > 1.0 - p:
        low, high = high, high * 2.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if t_upper_tail(middle, df) > 1.0 - p else (low, middle)
    return 0.5 * (low + high)


def binomial_cdf(k: int, n: int, p: float) -> float:
    """P(X <= k) for X binomial(n, p)."""
    if k < 0:
        return 0.0
    if k >= n:
        return 1.0
    return incomplete_beta(n - k, k + 1.0, 1.0 - p)


def noncentral_t_upper_tail(t: float, df: int, shift: float) -> float:
    """P(T' >= t) for the noncentral t: the power of a one-sided t test.

    ``shift`` is effect / (sd / sqrt(n)). T' = (Z + shift) / U with U = sqrt(chi2(df) / df), so the
    probability is the mean over U of P(Z >= t U - shift); U is integrated on a fine grid.
    """
    spread = 1.0 / sqrt(2.0 * df)
    grid = np.linspace(max(1e-6, 1.0 - 12 * spread), 1.0 + 14 * spread, _GRID)
    log_density = (df - 1) * np.log(grid) - df * grid**2 / 2.0
    weight = np.exp(log_density - log_density.max())
    tail = np.array([1.0 - normal_cdf(t * u - shift) for u in grid])
    return float((weight * tail).sum() / weight.sum())


__all__ = [
    "binomial_cdf",
    "incomplete_beta",
    "noncentral_t_upper_tail",
    "normal_cdf",
    "normal_quantile",
    "t_cdf",
    "t_quantile",
    "t_upper_tail",
]


# ------------------------------------------------------------------------------------------------
# What a number of pairs can see: smallest detectable effect, pairs needed; many tests at once.


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


@lru_cache(maxsize=1 << 12)
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
