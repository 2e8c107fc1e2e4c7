"""The decision rule: interleaved pairs, three looks, three verdicts.

Each pair gives d = ln(yB / yA), positive when B is worse. Looks come after 5, 10 and 20 pairs with
one-sided error 0.002, 0.003 and 0.005 (0.01 in all); a plan of up to 160 pairs looks after 20, 40,
80 and 160 as well, and these share the last:

- regressed: the t test at this look's error sees mean(d) > 0, and median(d) > ln(1 + threshold/2);
- pass: the 95 % upper bound of mean(d) is under ln(1 + threshold); after three pairs already, if
  the 99 % one is;
- otherwise look again later; at the last look the answer is inconclusive.

The threshold is the smallest change that must not slip through: a change of exactly the
threshold is found, one of less than half of it is not reported. ``benchmarks/decision_rules.py``
measures the error rates.
"""

from collections.abc import Mapping, Sequence
from math import expm1, inf, log1p, sqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pinchpoint.bench.statistics.distributions import (
    holm,
    pairs_needed,
    smallest_visible,
    t_quantile,
    t_upper_tail,
)
from pinchpoint.frozen import dataclass

Values = NDArray[np.float64]
Verdict = Literal["regressed", "pass", "inconclusive"]

LOOKS = (5, 10, 20)  # pairs; error rates are in docs/decisions/0009
# The last look of a plan that is given time instead of a number of pairs: where a pair of CPU times
# differs by 15 % (2 CPUs at load 7 to 12), 40 pairs know the mean to 4 %, and 160 to 2 %.
LONG = 160
_LONG_LOOKS = (*LOOKS, 40, 80)
# Of the whole error, spent at each look; the last has what is left.
ALPHA_SHARES = (0.2, 0.3, 0.25, 0.1, 0.075)
ALPHA = 0.01  # one false alarm in a hundred unchanged programs at most
PASS_CONFIDENCE = 0.95  # that the change is under the threshold
# Pairs after which a comparison may pass before the first look; a regression is found at looks
# alone. A program of torch spends most of a check on importing it, so that two pairs fewer are a
# third of a check. Of a change of exactly the threshold one in a hundred passes here, so that what
# is found stays what it was (benchmarks/decision_rules.py); of unchanged ones, with a threshold of
# 5 % and pairs that differ with a sd of 1 %, three in four end here, of 2 % one in three.
EARLY, EARLY_CONFIDENCE = 3, 0.99
# Pairs; of fewer too few would be left: of five the middle three agreed by chance on an unchanged
# program at load 19 on 2 CPUs (-2.9, 4.8, 5.0, 5.2 and 17.1 %), and it was said to be worse.
TRIMMED_FROM = 10
_NO_SPREAD = 1e-12  # identical values: the t statistic is infinite, not undefined


def abba(pairs: int) -> list[tuple[int, str]]:
    """The order of runs as (pair, arm): A B, B A, A B, … which cancels a steady drift."""
    order = []
    for pair in range(pairs):
        arms = "AB" if pair % 2 == 0 else "BA"
        order += [(pair, arm) for arm in arms]
    return order


@dataclass(frozen=True)
class Decision:
    """What the pairs so far say about one metric. Ratios are B / A - 1, positive is worse."""

    verdict: Verdict
    pairs: int
    threshold_ratio: float
    estimate_ratio: float
    ci95_ratio: tuple[float, float] | None
    median_ratio: float
    sd_log: float | None  # of a pair's log ratio
    p: float  # one-sided, paid for all looks so far; Holm-adjusted where several metrics gate

    @property
    def smallest_visible_ratio(self) -> float | None:
        """The slow-down that this many pairs see 95 % of the time; None below three pairs."""
        if self.sd_log is None or self.pairs < 3:
            return None
        return smallest_visible(self.sd_log, self.pairs)

    @property
    def pairs_needed(self) -> int | None:
        """Pairs that would see the threshold 95 % of the time; None if over 400, or unknown."""
        if self.sd_log is None:
            return None
        return pairs_needed(self.threshold_ratio, self.sd_log)


def sequential_p(d: Values, looks: Sequence[int] = LOOKS, *, trim_ratio: float = 0.0) -> float:
    """The p-value after the looks so far: the best p over its share of the error.

    Rejecting when it is at most 0.01 is the rule's error spending, look by look.
    """
    shares = _shares(len(looks))
    best = 1.0
    for look, share in zip(looks, shares, strict=True):
        if look <= len(d):
            best = min(best, _p(_center(d[:look], trim_ratio)) / share)
    return min(1.0, best)


def _shares(looks: int) -> tuple[float, ...]:
    """The error shares of the default looks; a shorter plan gives the rest to its last look."""
    first = ALPHA_SHARES[: looks - 1]
    return (*first, 1.0 - sum(first))


def in_the_middle(d: Values, trim_ratio: float) -> NDArray[np.intp]:
    """Which pairs the mean is made of: all but ``trim_ratio`` of them at each end."""
    cut = _cut(len(d), trim_ratio)
    return np.argsort(d, kind="stable")[cut : len(d) - cut]


def _cut(pairs: int, trim_ratio: float) -> int:
    return int(pairs * trim_ratio) if pairs >= TRIMMED_FROM else 0


@dataclass(frozen=True)
class _Center:
    """A mean of log ratios with its standard error; None below two pairs."""

    mean: float
    error: float | None
    df: int

    def quantile(self, p: float) -> float:
        """Of what the true mean may be; infinite where nothing is known."""
        if self.error is None:
            return inf if p > 0.5 else -inf
        return self.mean + t_quantile(p, self.df) * self.error


def _center(d: Values, trim_ratio: float) -> _Center:
    """The mean without ``trim_ratio`` of the pairs at each end, from ten pairs on.

    Its error is that of Tukey and McLaughlin (1963): the sd of the pairs with the ends pulled in,
    over the share that is left.
    """
    n = len(d)
    cut = _cut(n, trim_ratio)
    ordered = np.sort(d)
    mean = float(ordered[cut : n - cut].mean())
    if n < 2:
        return _Center(mean, None, 0)
    sd = float(np.clip(d, ordered[cut], ordered[n - cut - 1]).std(ddof=1))
    return _Center(mean, sd / ((1 - 2 * cut / n) * sqrt(n)), n - 2 * cut - 1)


def _p(center: _Center) -> float:
    if center.error is None:
        return 1.0
    if center.error < _NO_SPREAD:
        return 0.0 if center.mean > _NO_SPREAD else 1.0
    return t_upper_tail(center.mean / center.error, center.df)


def decide(d: Values, threshold: float, *, looks: Sequence[int] = LOOKS) -> Decision:
    """The verdict on one metric after ``len(d)`` pairs (shape ``(pairs,)``, log ratios)."""
    return decide_all({"": d}, {"": threshold}, looks=looks)[""]


def decide_all(
    ratios: Mapping[str, Values],
    thresholds: Mapping[str, float],
    *,
    looks: Sequence[int] = LOOKS,
    alpha: float = ALPHA,
    trim_ratio: float = 0.0,
    pass_confidence: float = PASS_CONFIDENCE,
) -> dict[str, Decision]:
    """The verdict on every gated metric, with Holm's correction over them.

    ``trim_ratio`` of the pairs at each end are left out of the mean, where some pairs are far off.
    """
    names = list(ratios)
    p_values = holm([sequential_p(ratios[n], looks, trim_ratio=trim_ratio) for n in names])
    return {
        name: _decision(ratios[name], thresholds[name], p, alpha, trim_ratio, pass_confidence)
        for name, p in zip(names, p_values, strict=True)
    }


def _decision(
    d: Values,
    threshold: float,
    p: float,
    alpha: float,
    trim_ratio: float,
    pass_confidence: float,
) -> Decision:
    center = _center(d, trim_ratio)
    verdict: Verdict = "inconclusive"
    if p <= alpha and float(np.median(d)) > log1p(threshold / 2):
        verdict = "regressed"
    elif center.quantile(pass_confidence) < log1p(threshold):
        verdict = "pass"
    low, high = center.quantile(0.025), center.quantile(0.975)
    return Decision(
        verdict=verdict,
        pairs=len(d),
        threshold_ratio=threshold,
        estimate_ratio=expm1(center.mean),
        ci95_ratio=None if center.error is None else (expm1(low), expm1(high)),
        median_ratio=expm1(float(np.median(d))),
        sd_log=float(d.std(ddof=1)) if len(d) > 1 else None,
        p=p,
    )


def looks_up_to(most_pairs: int) -> tuple[int, ...]:
    """The looks of a plan with at most ``most_pairs`` pairs; the last look is at the cap."""
    inner = [look for look in _LONG_LOOKS if look < most_pairs]
    return (*inner, most_pairs)
