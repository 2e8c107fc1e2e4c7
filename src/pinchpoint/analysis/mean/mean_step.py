"""The mean step: throughput is set by it, not by the typical step.

Over the complete steps, mean = typical part + excess of the exceptional steps, divided by the
number of steps. Exceptions with the same part and place are one cause.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import hypot, sqrt

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.source_lines import Place
from pinchpoint.analysis.mean.exceptional_steps import ExceptionalStep, exceptional_steps
from pinchpoint.analysis.mean.growth import grown_ns
from pinchpoint.analysis.mean.rare_steps import FEWEST_TO_REPEAT, rare_causes, recurring_ns
from pinchpoint.analysis.mean.step_kinds import FEWEST_STEPS, each_kind_alone, step_kinds
from pinchpoint.analysis.replay.predict import (
    comes_in_bursts,
    corrected_made,
    corrected_step_ns,
    timed_ns,
    with_doubt_of_launches,
)
from pinchpoint.analysis.replay.ranges import AS_IT_IS, Made, range_ns
from pinchpoint.analysis.statistics import in_bursts, rounded_mean
from pinchpoint.analysis.steps.steps import IRREGULAR_RATIO, steps
from pinchpoint.analysis.time.accounting import StepPart
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace

DIFFERENT_RATIO = 0.03  # mean and typical step apart by more: what a material cause is worth


@dataclass(frozen=True, eq=False)
class ExceptionalCause:
    """Exceptional steps with one cause."""

    part: StepPart
    kind: GapKind | None
    place: Place
    steps: tuple[ExceptionalStep, ...]
    ns_per_step: int  # what the part adds to the mean step
    every: int | None  # steps from one to the next, where that is always the same; of three or more
    starting: bool


@dataclass(frozen=True, eq=False)
class MeanStep:
    """Nanoseconds as recorded; ``mean_ns`` is ``typical_ns`` plus all excess over ``count``."""

    mean_ns: int
    typical_ns: int  # the mean with each exceptional step as long as a usual one
    steady_ns: int  # the mean without what only the beginning of program or recording took
    count: int  # complete steps
    causes: tuple[ExceptionalCause, ...]  # most time first

    def without_ns(self, cause: ExceptionalCause) -> int:
        """The mean if the cause's steps did not have it."""
        return self.steady_ns - cause.ns_per_step


@once_per_trace
def mean_step(trace: Trace) -> MeanStep | None:
    """The mean over the complete steps; None without any."""
    lasting = steps(trace).durations_ns
    n = len(lasting)
    if not n or steps(trace).how == "none":
        return None
    exceptions = exceptional_steps(trace)
    total = int(lasting.sum())
    excess = sum(e.excess_ns for e in exceptions)
    at_first = sum(e.excess_ns for e in exceptions if e.starting)
    return MeanStep(
        mean_ns=rounded_mean(total, n),
        typical_ns=rounded_mean(total - excess, n),
        steady_ns=rounded_mean(total - at_first, n),
        count=n,
        causes=_causes(exceptions, n),
    )


def _causes(exceptions: Sequence[ExceptionalStep], n: int) -> tuple[ExceptionalCause, ...]:
    alike: dict[tuple[str, bool, Place], list[ExceptionalStep]] = {}
    for one in exceptions:
        where = Place(file=one.place.file, line=one.place.line, function=one.place.function)
        alike.setdefault((one.part.id, one.starting, where), []).append(one)
    causes = [_cause(tuple(same), n) for same in alike.values()]
    return tuple(sorted(causes, key=lambda cause: -cause.ns_per_step))


def _cause(same: tuple[ExceptionalStep, ...], n: int) -> ExceptionalCause:
    longest = max(same, key=lambda one: one.part_ns)
    return ExceptionalCause(
        part=longest.part,
        kind=longest.kind,
        place=longest.place,
        steps=same,
        ns_per_step=rounded_mean(sum(one.part_ns for one in same), n),
        every=_period([one.step for one in same]),
        starting=longest.starting,
    )


def _period(at: Sequence[int]) -> int | None:
    if len(at) < FEWEST_TO_REPEAT:
        return None
    distances = set(np.diff(at).tolist())
    return distances.pop() if len(distances) == 1 else None


def mean_differs(trace: Trace) -> bool:
    """Whether the steady mean, not the typical step, tells what a step costs.

    Longer by exceptions, or another one because there are several kinds of steps.
    """
    mean, typical = mean_step(trace), steps(trace).typical_ns
    if mean is None or not typical or mean.count < FEWEST_STEPS or not step_kinds(trace).kinds:
        return False
    apart = mean.steady_ns / typical - 1
    if len(step_kinds(trace).kinds) > 1:
        return abs(apart) > DIFFERENT_RATIO
    return apart > DIFFERENT_RATIO and any(not cause.starting for cause in mean.causes)


@once_per_trace
def mean_without_profiler_ns(trace: Trace) -> int | None:
    """The mean step without the profiler where it is not the typical one; None where it is.

    Where the whole run was sampled, what its far steps add that come again is added to the typical
    one, and by how much steps grew after the window. Else the mean of the steps that the run timed
    outranks that of the recorded window. Else what recording costs a typical step is taken from the
    mean: exceptions cost it no more events.
    """
    usual = corrected_step_ns(trace)
    if usual is None:
        return None
    if rare_causes(trace) or grown_ns(trace):
        usual = usual_step_ns(trace) or usual
        more = recurring_ns(trace) + grown_ns(trace)
        return usual + more if more > DIFFERENT_RATIO * usual else None
    timed = timed_steps_ns(trace)
    if len(timed):
        mean_ns = round(_mean_of_run(trace, timed))
        return mean_ns if mean_ns > (1 + DIFFERENT_RATIO) * usual else None
    if not mean_differs(trace):
        return None
    mean = mean_step(trace)
    assert mean is not None
    return max(mean.steady_ns - _recording_ns(trace), 1)


def _mean_of_run(trace: Trace, timed: NDArray[np.int64]) -> float:
    """The mean of these steps. How often a step is far, the run knows better that all steps of were
    looked at: of those that came once, as much as they add to its mean."""
    samples = trace.run.samples if trace.run else None
    near = timed[timed <= IRREGULAR_RATIO * np.median(timed)]
    if samples is None or samples.count <= len(timed) or comes_in_bursts(trace):
        return float(np.mean(timed))
    if samples.typical_ns is None or len(near) == len(timed):
        return float(np.mean(timed))
    seen_ns = float(np.mean(near)) + samples.excess_ns / samples.count
    return min(seen_ns, float(np.mean(timed)))


@once_per_trace
def usual_step_ns(trace: Trace) -> int | None:
    """The step without the profiler that far steps of the run are counted beyond.

    Where they are among those that the run timed, neither the mean of these nor, where they are
    many, the median: that of the others.
    """
    usual = corrected_step_ns(trace)
    timed = timed_ns(trace)
    if usual is None or not timed or not in_bursts(timed):
        return usual
    if not (rare_causes(trace) or grown_ns(trace)):
        return usual
    return min(usual, int(np.median(_usual_timed_ns(trace))))


@once_per_trace
def usual_range_ns(trace: Trace) -> tuple[int, int] | None:
    """Between which times nine of ten usual steps lie that the run timed: without those that its
    far steps are. None where far steps are not counted beyond a usual one."""
    usual, timed = usual_step_ns(trace), _usual_timed_ns(trace)
    if usual is None or not len(timed) or usual == corrected_step_ns(trace):
        return None
    low, high = np.percentile(timed, (5, 95))
    return min(round(low), usual), max(round(high), usual)


def usual_error_ns(trace: Trace) -> int:
    """Two standard errors of the mean of the usual steps that the run timed; 0 where it timed
    none."""
    timed = _usual_timed_ns(trace)
    return round(2 * float(np.std(timed)) / sqrt(len(timed))) if len(timed) else 0


def _usual_timed_ns(trace: Trace) -> NDArray[np.int64]:
    timed = timed_steps_ns(trace)
    return timed[timed <= IRREGULAR_RATIO * np.median(timed)] if len(timed) else timed


def _recording_ns(trace: Trace) -> int:
    """What recording adds to the mean step: as much as to a typical one, or where there are several
    kinds of steps, to the steps of each kind as much as to a typical one of it."""
    kinds, alone = step_kinds(trace), each_kind_alone(trace)
    if not alone:
        return _added_ns(trace)
    count = np.array([len(kind.steps) for kind in kinds.kinds])
    count += np.bincount(kinds.like, minlength=len(count))
    return round(float(np.average([_added_ns(kind) for kind in alone], weights=count)))


def _added_ns(trace: Trace) -> int:
    """What recording adds to a typical step; 0 where that is not known."""
    typical, usual = steps(trace).typical_ns, corrected_step_ns(trace)
    return 0 if typical is None or usual is None else max(typical - usual, 0)


@once_per_trace
def made_with_exceptions(trace: Trace) -> Made | None:
    """What the typical step is made of, with how far the mean of as few exceptions may be off.

    Exceptions that came k times may have come k ± √k times. None where steps were timed without
    the profiler or the step is not known.
    """
    made, mean = corrected_made(trace), mean_step(trace)
    if made is None or mean is None or mean_without_profiler_ns(trace) is None:
        return made
    errors = [c.ns_per_step / sqrt(len(c.steps)) for c in mean.causes if not c.starting]
    return replace(made, rare_ns=hypot(*errors))


@once_per_trace
def mean_range_ns(trace: Trace) -> tuple[int, int] | None:
    """Between what :func:`mean_without_profiler_ns` may be; None where that is None."""
    mean_ns, usual, made = (
        mean_without_profiler_ns(trace),
        corrected_step_ns(trace),
        made_with_exceptions(trace),
    )
    if mean_ns is None or usual is None:
        return None
    timed = timed_steps_ns(trace)
    around = usual_range_ns(trace)
    if around is not None and rare_causes(trace):
        # As many far steps as were seen may have been more or fewer, and longer or shorter.
        again = [c.ns_per_step / sqrt(len(c.steps)) for c in rare_causes(trace) if c.recurs]
        more, doubt = mean_ns - (usual_step_ns(trace) or usual), hypot(*again)
        low, high = around[0] + more - doubt, around[1] + more + doubt
        return min(round(low), mean_ns), max(round(high), mean_ns)
    if len(timed):
        error = 2 * float(np.std(timed)) / sqrt(len(timed))  # two standard errors of a mean
        # Some steps that are far longer than the others make the mean longer than a typical one.
        least = min(usual, int(np.median(timed)), mean_ns)
        low, high = with_doubt_of_launches(
            trace, mean_ns, max(mean_ns - error, least), mean_ns + error
        )
        edges = round(low), round(high)
        counted = counted_mean_ns(trace) or mean_ns
        return min(edges[0], counted), max(edges[1], counted)
    if made is None:
        return None
    low, high = range_ns(made, AS_IT_IS)
    return low + mean_ns - usual, high + mean_ns - usual


def timed_steps_ns(trace: Trace) -> NDArray[np.int64]:
    """Steps that the same run timed without the profiler, less what launches cost more since it
    ran; empty where it timed none."""
    return np.array(timed_ns(trace), np.int64)


def counted_mean_ns(trace: Trace) -> int | None:
    """At most what the mean of all steps that a run counted is, pauses included, where it ended
    before it could say how long they took; None where it did say."""
    course = trace.run.course if trace.run else None
    if course is None or not course.counted:
        return None
    return rounded_mean(course.counted_ns, course.counted)


def at_the_rate_of_the_run(trace: Trace, ns: int) -> int:
    """What exceptions add to the mean step, at most what the steps of the whole run show of it."""
    timed = timed_steps_ns(trace)
    if not len(timed):
        return ns
    return min(ns, max(round(float(np.mean(timed) - np.median(timed))), 0))


@once_per_trace
def unrecorded_excess_ns(trace: Trace) -> int | None:
    """What the run's mean step takes beyond that of the recorded window; None if it is not much.

    The window's mean is put to the scale of the run: the same ratio to its typical step. None also
    where samples of the whole run say what it is.
    """
    if rare_causes(trace):
        return None
    timed, mean, typical = timed_steps_ns(trace), mean_step(trace), steps(trace).typical_ns
    if not len(timed) or mean is None or not typical:
        return None
    run_ns, usual = float(np.mean(timed)), float(np.median(timed))
    window_ns = usual * max(mean.steady_ns / typical, 1.0)
    more = run_ns - window_ns
    return round(more) if more > DIFFERENT_RATIO * run_ns else None
