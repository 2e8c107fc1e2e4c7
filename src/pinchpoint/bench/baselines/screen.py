"""One new session against a window of past ones: a screen, not a proof.

Sessions differ (day, node, driver, clocks), so a stored result plus a significance test is
unsound, and more repeats make it worse: only the spread *between sessions* says what is normal.
A change is suspect above the prediction bound of the window, and above 2 %. On typical noise
that flags 2.5 % of unchanged sessions, three quarters of true 5 % changes and all of 10 %
(``benchmarks/decision_rules.py``). So a suspect change is confirmed by ``bench ab``, and
history alone fails a job from 10 % only.
"""

from collections.abc import Sequence
from math import exp, log, sqrt

import numpy as np

from pinchpoint.bench.baselines import Entry
from pinchpoint.bench.statistics.distributions import t_quantile
from pinchpoint.bench.statistics.series import ChangePoint, change_points
from pinchpoint.bench.words import in_words
from pinchpoint.frozen import dataclass

CONFIDENCE = 0.995  # two gated measures then alarm in one of a hundred unchanged checks
LEAST_CHANGE = 0.02  # below, machines differ from day to day by themselves
FAILS_ALONE = 0.10  # found in all sessions of the simulation named above
FAILS_OF_FEW = 0.5  # sessions of small programs on quiet machines differ by up to a third
FAILS_CPU = 0.05  # of the CPU time of a step, where sessions differ by less
FEW_SESSIONS = 5  # fewer do not show the spread between sessions
# Of the range of a session's three runs, which is 1.7 of their sd on average: the medians of two
# sessions differ by 2.5 of that sd in one of a hundred pairs, and sessions by more than runs do.
FEW_SPREADS = 3.0


@dataclass(frozen=True)
class Screen:
    """What the history says about one measure. Ratios are of the worsening."""

    verdict: str  # pass, suspect, regressed, inconclusive
    why: str
    center: float | None
    change_ratio: float | None
    bound_ratio: float | None
    sessions: int


def screen(
    value: float, entry: Entry, *, fails_alone: float = FAILS_ALONE, runs: Sequence[float] = ()
) -> Screen:
    """Judge a session's median against the present level of the entry.

    ``runs`` are the values of this session's runs: while the baseline has too few sessions to show
    how they differ, their spread is the only sign of how noisy the benchmark is.
    """
    past = [m.value for m in entry.present_level() if m.value > 0]
    if not past or value <= 0:
        return Screen("inconclusive", "no past session to compare with", None, None, None, 0)
    logs = np.log(past)
    center = exp(float(logs.mean()))
    sign = 1 if entry.better == "lower" else -1
    change = exp(sign * log(value / center)) - 1
    threshold = entry.threshold.as_ratio(center) if entry.threshold else None
    if entry.test == "exact":
        least = LEAST_CHANGE if threshold is None else threshold
        return _exact(change, least, center, len(past))
    bound = _bound(logs, threshold, runs)
    how = in_words(change, entry.better)
    verdict, why = _judge(change, how, bound, threshold, len(past), fails_alone)
    return Screen(verdict, why, center, change, bound, len(past))


def _exact(change: float, threshold: float, center: float, sessions: int) -> Screen:
    verdict = "regressed" if change > threshold else "pass"
    return Screen(
        verdict, "repeats exactly, so any change is real", center, change, threshold, sessions
    )


def _bound(
    logs: "np.ndarray[tuple[int], np.dtype[np.float64]]",
    threshold: float | None,
    runs: Sequence[float],
) -> float:
    least = max(LEAST_CHANGE, (threshold or 0) / 2)
    k = len(logs)
    if k < FEW_SESSIONS:
        positive = np.log([v for v in runs if v > 0] or [1.0])
        return max(least, exp(FEW_SPREADS * float(np.ptp(positive))) - 1)
    spread = float(logs.std(ddof=1)) * sqrt(1 + 1 / k)
    return max(least, exp(t_quantile(CONFIDENCE, k - 1) * spread) - 1)


def _judge(
    change: float,
    how: str,
    bound: float,
    threshold: float | None,
    sessions: int,
    fails_alone: float,
) -> tuple[str, str]:
    note = ""
    if sessions < FEW_SESSIONS:
        past = "1 past session" if sessions == 1 else f"{sessions} past sessions"
        note = f" (with {past}; how much they differ by themselves is known from {FEW_SESSIONS} on)"
    from_here = f"counts as worse from {_percent(bound)} on"
    if change > bound and change >= fails_alone:
        return "regressed", f"{how}, which {from_here}{note}"
    if change > bound:
        said = f"{how}, which {from_here}, yet past sessions alone fail only what is"
        return "suspect", f"{said} {_percent(fails_alone)} worse{note}"
    if threshold is not None and bound > threshold:
        what = "the runs of this session" if sessions < FEW_SESSIONS else "past sessions"
        why = f"{what} differ so much that only changes over {_percent(bound)} show"
        return "inconclusive", f"{why}, and the gate is at {_percent(threshold)}{note}"
    return "pass", f"{how}; {from_here}{note}"


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.1f} %"


def levels(entry: Entry, candidate: float | None = None) -> tuple[ChangePoint, ...]:
    """Where the level changed in the whole history (and with the new value at its end); not where
    pairs of runs in the same minutes say that it was the machine."""
    values: Sequence[float] = [m.value for m in entry.session_medians]
    found = change_points(np.array([*values, *([candidate] if candidate else [])]))
    return tuple(p for p in found if not _by_the_machine(entry, p))


def _by_the_machine(entry: Entry, point: ChangePoint) -> bool:
    if point.at >= len(entry.session_medians):
        return False
    beside = entry.session_medians[point.at].beside_base
    ratio = 1 + point.change_ratio
    worsening = (ratio if entry.better == "lower" else 1 / ratio) - 1
    return beside is not None and not may_be_so(worsening, beside.ci95_ratio)


def may_be_so(worsening: float, ci95_ratio: tuple[float, float] | None) -> bool:
    """Whether pairs of runs in the same minutes, with this interval of the change, leave room for
    half of a worsening (or of an improvement) that medians of different hours show."""
    if ci95_ratio is None:
        return True
    low, high = ci95_ratio
    return high >= worsening / 2 if worsening > 0 else low <= worsening / 2


def contradicted(entry: Entry, at: int) -> tuple[int, float] | None:
    """Where the median of session ``at`` says something else of its base than pairs of runs in the
    same minutes did: which session is that base, and the worsening by both medians.

    None where both agree, or where the base is no session of this history.
    """
    session = entry.session_medians[at]
    beside = session.beside_base
    if beside is None or beside.commit is None or beside.ci95_ratio is None:
        return None
    earlier = entry.session_medians[:at]
    bases = [i for i, m in enumerate(earlier) if m.commit == beside.commit and m.value > 0]
    if not bases or session.value <= 0:
        return None
    ratio = session.value / earlier[bases[-1]].value
    alone = (ratio if entry.better == "lower" else 1 / ratio) - 1
    low, high = beside.ci95_ratio
    agrees = low - LEAST_CHANGE <= alone <= high + LEAST_CHANGE
    return None if agrees else (bases[-1], alone)


def why_pairs(gated: Sequence[Entry], *, busy: bool) -> str:
    """Why only pairs with the base can decide what has a gate; empty where the history may as well.

    A level with a session whose pairs deny its median has hours of two kinds in it: what is slower
    than the faster ones may be no slower than all of them together.
    """
    if not gated:
        return ""
    if any(len(entry.present_level()) < FEW_SESSIONS for entry in gated):
        return "few past sessions"
    for entry in gated:
        size = len(entry.session_medians)
        level = range(size - len(entry.present_level()), size)
        if any(contradicted(entry, i) for i in level):
            return "past sessions are of busy and of quiet hours"
    return "the machine is busy" if busy else ""
