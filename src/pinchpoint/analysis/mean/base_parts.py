"""The parts of the step that gains count from, so that both are one step.

Where that is the mean step, what exceptional steps and other kinds of steps take is in the parts.
What the recorded steps do not show (the run's own steps took longer) is a part of its own.
"""

import numpy as np

from pinchpoint.analysis.mean.exceptional_steps import exceptional_steps
from pinchpoint.analysis.mean.growth import grown_ns
from pinchpoint.analysis.mean.mean_step import (
    mean_differs,
    mean_step,
    mean_without_profiler_ns,
    usual_step_ns,
)
from pinchpoint.analysis.mean.on_cpu import slower_outside
from pinchpoint.analysis.mean.rare_steps import rare_causes
from pinchpoint.analysis.replay.recording_cost import why_uncalibrated
from pinchpoint.analysis.replay.unprofiled import take, without_cost
from pinchpoint.analysis.statistics import share_out
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.steps.timed import timed_by_run
from pinchpoint.analysis.time.accounting import StepPart, breakdown
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Ints

OUTSIDE = StepPart("not-recorded", "longer steps of the run, not recorded", "outside")


@dataclass(frozen=True, eq=False)
class BaseParts:
    """The parts of ``breakdown(trace)`` in its order, then ``OUTSIDE``, on both clocks."""

    ns: Ints  # without the profiler where that is known; add up to what gains count from
    recorded_ns: Ints  # the same step in the recording


@once_per_trace
def base_parts(trace: Trace) -> BaseParts | None:
    """The parts; None where no step was found."""
    typical = breakdown(trace).ns_per_step
    if not len(typical):
        return None
    usual = usual_step_ns(trace) if _is_corrected(trace) else None
    if usual is None:
        ns = _steady(trace) if mean_differs(trace) else typical
        return BaseParts(np.append(ns, 0), np.append(ns, 0))
    mean_ns = mean_without_profiler_ns(trace)
    if mean_ns is None:
        return BaseParts(_without_profiler(trace, typical, usual, 0), np.append(typical, 0))
    if mean_differs(trace) and not (rare_causes(trace) or grown_ns(trace)):
        ns = _without_profiler(trace, _steady(trace), mean_ns, 0)
    else:  # the recorded steps do not show why the mean is longer
        ns = _without_profiler(trace, typical, usual, mean_ns - usual)
    return BaseParts(ns, np.append(_all_steps(trace), 0))


def _is_corrected(trace: Trace) -> bool:
    return bool(timed_by_run(trace)) or why_uncalibrated(trace) is None


def _all_steps(trace: Trace) -> Ints:
    """The mean over the complete steps."""
    complete, mean = steps(trace).complete, mean_step(trace)
    sums = breakdown(trace).by_step[complete].sum(axis=0)
    return sums if mean is None else share_out(sums, mean.count, mean.mean_ns)


def _steady(trace: Trace) -> Ints:
    """The same without what only the beginning took, which is taken from the steps it made long."""
    found, mean = steps(trace), mean_step(trace)
    by_step = breakdown(trace).by_step.copy()
    for one in exceptional_steps(trace):
        if one.starting:
            row = by_step[one.step]
            take(row, np.ones(len(row), np.bool_), one.excess_ns)
    sums = by_step[found.complete].sum(axis=0)
    return sums if mean is None else share_out(sums, mean.count, mean.steady_ns)


def _without_profiler(trace: Trace, recorded: Ints, ns: int, more_ns: int) -> Ints:
    """Recorded parts as those of a step of ``ns`` without the profiler, and what is added to it.

    What recording cost comes out of idle and host time; where these do not hold it, the rest out of
    all parts alike. A step that was recorded quicker than it is has more outside the recording, but
    where others made it slower, which made all parts so.
    """
    cost_ns = int(recorded.sum()) - ns
    if cost_ns < 0 and slower_outside(trace) > 1:
        ends = np.round(np.cumsum(recorded) * (ns / recorded.sum())).astype(np.int64)
        return np.append(np.diff(ends, prepend=0), more_ns)
    if cost_ns > 0:
        recorded, rest_ns = without_cost(breakdown(trace).parts, recorded, cost_ns)
        take(recorded, np.ones(len(recorded), np.bool_), rest_ns)
    return np.append(recorded, more_ns + max(-cost_ns, 0))
