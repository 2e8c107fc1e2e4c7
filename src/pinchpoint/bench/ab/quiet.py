"""What decides where wall time cannot tell: measures that neighbours on the machine change little.

Neighbours take a program's CPUs, and so its wall time. Of three other measures they change little:
the time without waiting for a CPU, which is what the thread would take on a CPU of its own; the CPU
time; and the instructions, where a counter of them may be used. Where a device times the steps none
of them says anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pinchpoint.bench.ab.decision import (
    ALPHA,
    PASS_CONFIDENCE,
    Decision,
    Values,
    Verdict,
    decide_all,
)
from pinchpoint.bench.ab.pairs import Pair, log_ratios
from pinchpoint.bench.measures import OWN_TIME, OWN_WORK, QUIET_STEP, QUIET_WORK, TIMES, Measure

QUIET_ALPHA = ALPHA / 2  # on top of the error of wall time itself
# At load 9 to 14 on 2 CPUs most pairs of CPU times differ by 3 %, and one of four by 30 %, as the
# CPU itself is slow for a second or two. Without the outer thirds 40 pairs see 10 % there in 99 of
# 100 cases, with them in 64; of unchanged ones 0.06 % alarm (simulated, 40,000 of each, at 0.2 %).
TRIM_RATIO = 0.3


@dataclass(frozen=True)
class QuietDecision:
    """The verdict that quiet measures give, which of them give it, and what each says."""

    verdict: Verdict
    by: tuple[str, ...]
    decisions: Mapping[str, Decision]


def decide_quietly(
    pairs: Sequence[Pair],
    decisions: Mapping[str, Decision],
    measures: Mapping[str, Measure],
    looks: Sequence[int],
    *,
    pass_confidence: float = PASS_CONFIDENCE,
) -> QuietDecision:
    """Where wall time is gated and open; ``decisions`` are those of the gated measures.

    One quiet measure that got worse is a regression, unless the time without waiting for a CPU
    looks as before: work that went to other processes is no CPU time of this one. To pass, all
    must pass, the time without waiting for a CPU among them, and nothing may be open but wall times
    that do not look worse.
    """
    found = _decisions(pairs, decisions, measures, looks, pass_confidence)
    worse = tuple(n for n, d in found.items() if d.verdict == "regressed")
    own = next((d for n, d in found.items() if n in (OWN_TIME, OWN_WORK)), None)
    if worse and (own is None or own.estimate_ratio > own.threshold_ratio / 2):
        return QuietDecision("regressed", worse, found)
    settled = all(d.verdict == "pass" for d in found.values())
    fine = all(
        d.verdict == "pass" or (name in TIMES and _may_be_unchanged(d))
        for name, d in decisions.items()
    )
    if own is not None and settled and fine:
        return QuietDecision("pass", tuple(found), found)
    return QuietDecision("inconclusive", (), found)


def unless_worse_by_itself(
    pairs: Sequence[Pair], decisions: Mapping[str, Decision], measures: Mapping[str, Measure]
) -> dict[str, Decision]:
    """``decisions``, where a wall time passes only if the step does not look worse without waiting
    for a CPU. On a quiet machine both are the same. On a busy one a few pairs agree by luck: at
    load 11 on 2 CPUs five of a program that took 10 % more differed by -8 to +3 %, and it passed.
    """
    passing = {n: d for n, d in decisions.items() if n in TIMES and d.verdict == "pass"}
    own = {n: d for n, d in _ratios(pairs, measures).items() if n in (OWN_TIME, OWN_WORK)}
    if not passing or not own:
        return dict(decisions)
    least = min(d.threshold_ratio for d in passing.values())
    looks = decide_all(own, dict.fromkeys(own, least), looks=(len(pairs),), trim_ratio=TRIM_RATIO)
    if all(d.estimate_ratio <= least / 2 for d in looks.values()):
        return dict(decisions)
    return dict(decisions) | {n: replace(d, verdict="inconclusive") for n, d in passing.items()}


def _ratios(pairs: Sequence[Pair], measures: Mapping[str, Measure]) -> dict[str, Values]:
    """Of each quiet measure that all pairs have; none where a device times the steps."""
    runs = [run for pair in pairs for run in pair]
    if any(r.steps is not None and r.steps.clock != "host" for r in runs):
        return {}
    names = QUIET_STEP if all(r.steps is not None for r in runs) else QUIET_WORK
    ratios = {n: log_ratios(pairs, measures[n]) for n in names if n in measures}
    return {n: d for n, d in ratios.items() if len(d) == len(pairs) >= 2}


def _decisions(
    pairs: Sequence[Pair],
    decisions: Mapping[str, Decision],
    measures: Mapping[str, Measure],
    looks: Sequence[int],
    pass_confidence: float,
) -> dict[str, Decision]:
    """Of each quiet measure, against the smallest threshold of the wall times that are open."""
    times = [
        d.threshold_ratio
        for name, d in decisions.items()
        if name in TIMES and d.verdict == "inconclusive"
    ]
    if not times:
        return {}
    whole = _ratios(pairs, measures)
    thresholds = dict.fromkeys(whole, min(times))
    return decide_all(
        whole,
        thresholds,
        looks=looks,
        alpha=QUIET_ALPHA,
        trim_ratio=TRIM_RATIO,
        pass_confidence=pass_confidence,
    )


def _may_be_unchanged(wall: Decision) -> bool:
    return wall.ci95_ratio is not None and wall.ci95_ratio[0] <= 0
