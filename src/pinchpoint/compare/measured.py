"""Profiles of both sides of a comparison, held against what its pairs of runs measured.

A recording is one run, the pairs are many: where both contradict each other the pairs are right,
and what the recordings say of the time of a piece is not said.
"""

from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from pinchpoint.bench.ab.changed_code import ChangedCode
from pinchpoint.bench.ab.result import AbResult, MeasureResult
from pinchpoint.bench.measures import CPU_TIME, OWN_TIME, STEP_TIME
from pinchpoint.compare.profiles import CauseOfChange, ProfileComparison
from pinchpoint.compare.worth import ChangedWorth
from pinchpoint.frozen import dataclass

# The step without the profiler is right within this in nine of ten recordings (docs/accuracy.md).
RECORDED_ERROR_RATIO = 0.12


@dataclass(frozen=True)
class Grown:
    """Changed code, and what its function is worth to a step in both recordings, where they have
    it and agree with the pairs."""

    code: ChangedCode
    worth: ChangedWorth | None


def measured_step(result: AbResult) -> MeasureResult | None:
    """The time of a step that was found worse; None where no step was timed."""
    by_name = {m.name: m for m in result.measures}
    step = by_name.get(STEP_TIME)
    if step is not None and step.gated and step.verdict == "regressed":
        return step
    decided = (by_name.get(name) for name in (OWN_TIME, CPU_TIME) if name in result.decided_by)
    return next((m for m in decided if m is not None), step)


def steps_compared(found: ProfileComparison) -> tuple[int, int] | None:
    """A step in both recordings, without the profiler where that is known of both."""
    for a, b in (
        (found.a.unprofiled_step_ns, found.b.unprofiled_step_ns),
        (found.a_step_ns, found.b_step_ns),
    ):
        if a and b:
            return a, b
    return None


def agrees(found: ProfileComparison, step: MeasureResult) -> bool:
    """Whether the step changed in the recordings as in the pairs, within the errors of both."""
    both = steps_compared(found)
    if both is None:
        return False
    low, high = step.ci95_ratio or (step.estimate_ratio, step.estimate_ratio)
    ratio = both[1] / both[0] - 1
    return low - RECORDED_ERROR_RATIO <= ratio <= high + RECORDED_ERROR_RATIO


def within(found: ProfileComparison, step: MeasureResult) -> ProfileComparison:
    """Without causes and pieces that explain more than the step changed by, its interval included;
    and without findings that only one side reports, which a threshold alone may part."""
    both = steps_compared(found)
    high = (step.ci95_ratio or (0.0, step.estimate_ratio))[1]
    most_ns = max(high, step.estimate_ratio, 0.0) * (both[0] if both else 0)
    causes = tuple(c for c in found.causes if c.change_ns is None or c.change_ns <= most_ns)
    worth = tuple(w for w in found.worth if w.change_ns <= most_ns)
    return msgspec.structs.replace(found, causes=causes, worth=worth, findings=())


def grown(code: Sequence[ChangedCode], found: ProfileComparison | None) -> tuple[Grown, ...]:
    """Changed code, what grew most first; the rest in the order of the commit."""
    lines = [w for w in found.worth if w.by == "line" and w.change_ns > 0] if found else []
    each = [Grown(one, next((w for w in lines if _is_of(w, one)), None)) for one in code]
    return tuple(sorted(each, key=lambda g: -g.worth.change_ns if g.worth else 0))


def new_at_changed_code(
    found: ProfileComparison, code: Sequence[ChangedCode]
) -> tuple[tuple[CauseOfChange, ChangedCode], ...]:
    """Causes that B alone has, in functions that the commit changed: what they rest on is in one
    recording and not in the other, whatever both say of times."""
    pairs = []
    for cause in found.causes:
        if cause.rests_on != "finding" or cause.a_saving_ns is not None or not cause.where:
            continue
        if (cause.change_ns or 0) < 0:
            continue  # of A
        at = next((one for one in code if one.function and _is_at(cause.where, one)), None)
        if at is not None:
            pairs.append((cause, at))
    return tuple(pairs)


def _is_at(where: str, code: ChangedCode) -> bool:
    """Of a location in words: ``forward (model.py:41), Block``."""
    function, _, place = where.partition(" (")
    same_file = PurePath(place.partition(":")[0].partition(")")[0]).name == PurePath(code.file).name
    return same_file and code.function.split(".")[-1] == function


def _is_of(worth: ChangedWorth, code: ChangedCode) -> bool:
    """By function and file, as frames have no more: ``forward (train.py)``."""
    function, _, place = worth.name.rpartition(" (")
    same_file = PurePath(place.removesuffix(")")).name == PurePath(code.file).name
    return bool(code.function) and same_file and code.function.split(".")[-1] == function
