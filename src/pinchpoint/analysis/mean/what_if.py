"""What the mean step would be after a change.

Replay runs a window of steps, and an exceptional step may lie outside it. What a change takes away
of an exception there comes from the accounting: the time in which both overlap.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.on_cpu import compiled_for_cpu, computes_on_cpu
from pinchpoint.analysis.mean.exceptional_steps import ExceptionalStep, exceptional_steps
from pinchpoint.analysis.mean.growth import grown_ns
from pinchpoint.analysis.mean.mean_step import (
    made_with_exceptions,
    mean_differs,
    mean_range_ns,
    mean_step,
    mean_without_profiler_ns,
    timed_steps_ns,
    usual_step_ns,
)
from pinchpoint.analysis.mean.rare_steps import rare_causes, recurring_ns
from pinchpoint.analysis.replay.changes import (
    Change,
    DropDeviceOps,
    DropSyncs,
    LimitDeviceOps,
    RemoveHostTime,
    ScaleDeviceOps,
    ScaleHostSpans,
)
from pinchpoint.analysis.replay.predict import (
    after_saving,
    comes_in_bursts,
    corrected_range_ns,
    corrected_step_ns,
    least_by_launches_ns,
    what_if,
)
from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.analysis.replay.ranges import AFTER_A_FIX, AS_IT_IS, Doubtful, most_doubtful
from pinchpoint.analysis.replay.window import replayable
from pinchpoint.analysis.steps.steps import IRREGULAR_RATIO, steps
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace import intervals as iv

Times = NDArray[np.int64]


def step_base_ns(trace: Trace) -> int | None:
    """The step that gains are counted from, without the profiler: the mean one where it differs
    from the typical one, else that."""
    usual, mean = corrected_step_ns(trace), mean_step(trace)
    on_cpu = computes_on_cpu(trace) or compiled_for_cpu(trace)
    if usual is None and on_cpu and not mean_differs(trace):
        return steps(trace).typical_ns
    if usual is None:
        return mean.steady_ns if mean is not None and mean_differs(trace) else None
    different = mean_without_profiler_ns(trace)
    return usual if different is None else different


def step_range_ns(trace: Trace) -> tuple[int, int] | None:
    """Between what :func:`step_base_ns` may be; None where that is not known."""
    return mean_range_ns(trace) or corrected_range_ns(trace)


def why_not_closer(trace: Trace) -> Doubtful | None:
    """Why the step without the profiler is a range and no point; None where it is one, and where it
    was timed, unless launches may explain a shorter one."""
    if least_by_launches_ns(trace) is not None:
        return Doubtful.LAUNCHES
    made = made_with_exceptions(trace)
    return None if made is None else most_doubtful(made, AS_IT_IS)


def what_if_mean(
    trace: Trace,
    changes: Sequence[Change],
    *,
    every_step: bool = False,
    runs_ahead: bool = False,
) -> Prediction | None:
    """As ``replay.what_if``, counted from the mean step where that is not the typical one."""
    if computes_on_cpu(trace):
        from pinchpoint.analysis.mean.on_cpu import slower_outside, what_if_on_cpu

        said = _of_the_step_said(
            what_if_on_cpu(trace, [(one.ratio, one.spans) for one in _touched(trace, changes)]),
            step_base_ns(trace),
            slower_outside(trace),
        )
        return None if said is None else _less(said, _beyond_ns(changes))
    base, again = step_base_ns(trace), _recurring(trace)
    timed = len(timed_steps_ns(trace)) > 0  # then replay goes by what is usual in the run
    replays_all = every_step and (timed or _are_replayed(trace, again))
    replayed = what_if(trace, changes, every_step=replays_all, runs_ahead=runs_ahead)
    if replayed is None or base is None:
        return replayed
    if mean_without_profiler_ns(trace) is None or (replays_all and not timed):
        return _counted_from(replayed, base)
    if _wander(trace):
        said = _counted_from(replayed, base)
        low_ns = min(said.range_ns[0], replayed.range_ns[0])
        return replace(said, range_ns=(low_ns, said.range_ns[1]))
    if replayed.base_ns > base:  # the run's mean is shorter than the steps that replay goes by
        usual = base if replays_all else usual_step_ns(trace)
        replayed = replayed.counted_from(min(usual or base, base))
    beyond_ns = taken_ns(trace, changes, again)
    if timed:
        beyond_ns = 0 if replays_all else _of_far_steps(trace, beyond_ns, again)
    beyond_ns += min(_beyond_ns(changes), max(base - replayed.base_ns - beyond_ns, 0))
    # Without its exceptions the mean step is a typical one, and no shorter than that.
    least = replayed.step_ns if base > replayed.base_ns else 0
    step_ns = max(base - replayed.saving_ns - beyond_ns, least)
    low, high = (step_ns + edge - replayed.step_ns for edge in replayed.range_ns)
    bound_ns = replayed.bound_ns or 0
    least = max(round(low - AFTER_A_FIX.fix * beyond_ns), bound_ns)
    most = min(round(high + AFTER_A_FIX.fix * beyond_ns), max(base, step_ns))
    replayed_raw_ns = replayed.step_ns if replayed.raw_ns is None else replayed.raw_ns
    raw_least_ns = replayed_raw_ns if base > replayed.base_ns else 0
    raw_ns = max(base - (replayed.base_ns - replayed_raw_ns) - beyond_ns, raw_least_ns)
    return Prediction(step_ns, (least, most), base, raw_ns, replayed.bound_ns, replayed.made)


def _wander(trace: Trace) -> bool:
    """Whether the mean of the steps that the run timed exceeds their median though none of them is
    far: steps that wander as wholes, of which a fix may leave as large a part, or nothing."""
    timed = timed_steps_ns(trace)
    if not len(timed) or timed.max() > IRREGULAR_RATIO * np.median(timed):
        return False
    return not (rare_causes(trace) or grown_ns(trace) or comes_in_bursts(trace))


def by_recorded(trace: Trace, changes: Sequence[Change]) -> Prediction | None:
    """What the recorded time that changes take away wins of the step that gains are counted from;
    None where they take none or nothing is known of the step."""
    recorded = [
        replace(change, beyond_ns=0) if isinstance(change, RemoveHostTime) else change
        for change in changes
    ]
    return what_if_mean(trace, recorded) if recorded else None


def _beyond_ns(changes: Sequence[Change]) -> int:
    return sum(change.beyond_ns for change in changes if isinstance(change, RemoveHostTime))


def _less(after: Prediction, beyond_ns: int) -> Prediction:
    """Without so much of the mean step that no recorded one shows."""
    low, high = (max(end - beyond_ns, 0) for end in after.range_ns)
    known = [
        None if ns is None else max(ns - beyond_ns, 0) for ns in (after.raw_ns, after.bound_ns)
    ]
    step_ns = max(after.step_ns - beyond_ns, 0)
    return replace(after, step_ns=step_ns, range_ns=(low, high), raw_ns=known[0], bound_ns=known[1])


def between(sure: Prediction | None, best: Prediction | None) -> Prediction | None:
    """The middle of two predictions of one step, ``best`` of the change that wins more.

    As many times the shorter as the longer is of it: off by the same factor, whichever way is
    taken. The range holds both.
    """
    if sure is None or best is None:
        return sure
    both, raw = (sure, best), [of.raw_ns for of in (sure, best) if of.raw_ns is not None]
    range_ns = min(of.range_ns[0] for of in both), max(of.range_ns[1] for of in both)
    if best.step_ns >= sure.step_ns:
        return replace(sure, range_ns=range_ns)
    return Prediction(
        round(sqrt(sure.step_ns * best.step_ns)),
        range_ns,
        sure.base_ns,
        round(sqrt(raw[0] * raw[1])) if len(raw) == 2 and min(raw) >= 0 else None,
        best.bound_ns,
        of_host=best.of_host,
    )


def _counted_from(replayed: Prediction, base_ns: int) -> Prediction:
    """Held against the step that is said, in proportion to the mean of all that was replayed: a
    difference between these two is no gain, and goes with what made the steps long."""
    share = base_ns / max(replayed.base_ns, 1)
    after_ns = max(replayed.step_ns, round(replayed.step_ns * share))
    shift_ns, step_ns = after_ns - replayed.step_ns, min(after_ns, base_ns)
    low, high = (min(end + shift_ns, base_ns) for end in replayed.range_ns)
    bound_ns, raw_ns = replayed.bound_ns, replayed.raw_ns
    return replace(
        replayed,
        step_ns=step_ns,
        range_ns=(low, high),
        base_ns=base_ns,
        raw_ns=None if raw_ns is None else min(raw_ns + shift_ns, base_ns),
        bound_ns=None if bound_ns is None else min(bound_ns, step_ns),
    )


def _of_the_step_said(
    typical: Prediction | None, base_ns: int | None, slower: float = 1.0
) -> Prediction | None:
    """What a typical recorded step would win, counted from the step that is said: less where that
    is shorter, for recording costs time everywhere; no more where it is longer, unless others made
    everything ``slower`` than in the recorded steps."""
    if typical is None or base_ns is None or base_ns == typical.base_ns:
        return typical
    ratio = base_ns / max(typical.base_ns, 1)
    share = min(ratio, slower)

    def left_ns(step_ns: int, share: float = share) -> int:
        return base_ns - round((typical.base_ns - step_ns) * share)

    low, high = typical.range_ns
    raw_ns, bound_ns = typical.raw_ns, typical.bound_ns
    return replace(
        typical,
        step_ns=left_ns(typical.step_ns),
        range_ns=(left_ns(low), left_ns(high, min(share, 1.0))),
        base_ns=base_ns,
        raw_ns=None if raw_ns is None else left_ns(raw_ns),
        bound_ns=None if bound_ns is None else min(left_ns(bound_ns), bound_ns),
    )


def saved_mean(
    trace: Trace,
    saving_ns: tuple[int, int],
    leaves_ns: int | None = None,
    *,
    likely_ns: int | None = None,
) -> Prediction | None:
    """As ``replay.after_saving``, counted from the mean step where that is not the typical one."""
    base = step_base_ns(trace)
    return after_saving(trace, saving_ns, leaves_ns, base_ns=base, likely_ns=likely_ns)


def taken_ns(trace: Trace, changes: Sequence[Change], exceptions: Sequence[ExceptionalStep]) -> int:
    """What changes take away of these exceptional steps, for each complete step."""
    if not exceptions:
        return 0
    total = 0.0
    for one in exceptions:
        stretches = iv.flatten(one.start_ns, one.end_ns)
        covered = sum(
            ratio * iv.intersect(stretches, spans).total
            for ratio, spans, _ in _touched(trace, changes)
        )
        total += min(covered, one.part_ns)
    return round(total / max(len(steps(trace).durations_ns), 1))


def _of_far_steps(trace: Trace, taken: int, recorded: Sequence[ExceptionalStep]) -> int:
    """Of what far steps of the whole run add to its mean, as much as is taken of recorded ones."""
    excess_ns = sum(one.excess_ns for one in recorded)
    count = max(len(steps(trace).durations_ns), 1)
    return round(recurring_ns(trace) * min(taken * count / max(excess_ns, 1), 1.0))


def covered_ratio(trace: Trace, changes: Sequence[Change], of: Sequence[Change]) -> float:
    """The share of the time that ``of`` takes away which ``changes`` take away as well.

    A wait that is gone takes nothing of the device's work that it waited for; less of that work
    takes the wait.
    """
    mine, theirs = _touched(trace, of), _touched(trace, changes)
    whole = _union(mine)
    if not whole.total:
        return 0.0
    host, device = ([one for one in mine if one.of_device == way] for way in (False, True))
    work = [one for one in theirs if one.of_device]
    both = (
        iv.intersect(_union(host), _union(theirs)),
        iv.intersect(_union(device), _union(work)),
    )
    return iv.union(*both).total / whole.total


class _Touched(NamedTuple):
    ratio: float  # of it, what is taken away
    spans: iv.Intervals
    of_device: bool  # work of the device; else time of the host


def _union(touched: Sequence[_Touched]) -> iv.Intervals:
    spans = [one.spans for one in touched if one.ratio > 0]
    if not spans:
        return iv.NONE
    return iv.flatten(
        np.concatenate([span.start for span in spans]), np.concatenate([span.end for span in spans])
    )


def _touched(trace: Trace, changes: Sequence[Change]) -> list[_Touched]:
    """The stretches of time that each change takes away, with the share that it takes."""
    out = []
    for change in changes:
        match change:
            case RemoveHostTime(start_ns=start, end_ns=end):
                out.append(_Touched(1.0, iv.flatten(start, end), False))
            case ScaleHostSpans(rows, factor):
                spans = _spans(trace, "host_ops", rows)
                out.append(_Touched(float(np.mean(1 - factor)), spans, False))
            case DropSyncs(rows):
                out.append(_Touched(1.0, _spans(trace, "api_calls", rows), False))
            case DropDeviceOps(rows):
                out.append(_Touched(1.0, _spans(trace, "device_ops", rows), True))
            case LimitDeviceOps(rows, limit):
                took = trace.device_ops["duration_ns"][rows] if trace.device_ops else limit
                ratio = 1 - float(limit.sum()) / max(float(took.sum()), 1.0)
                out.append(_Touched(ratio, _spans(trace, "device_ops", rows), True))
            case ScaleDeviceOps(rows, factor):
                ratio, spans = float(np.mean(1 - factor)), _spans(trace, "device_ops", rows)
                out.append(_Touched(ratio, spans, True))
            case _:
                pass
    return out


def _spans(trace: Trace, table: str, rows: NDArray[np.intp]) -> iv.Intervals:
    of = getattr(trace, table)
    return iv.flatten(of["start_ns"][rows], of.end_ns[rows])


@once_per_trace
def _recurring(trace: Trace) -> tuple[ExceptionalStep, ...]:
    """Exceptional steps that are not just the slow beginning."""
    return tuple(one for one in exceptional_steps(trace) if not one.starting)


def _are_replayed(trace: Trace, exceptions: Sequence[ExceptionalStep]) -> bool:
    """Whether the steps that replay runs include all of these."""
    base, calls = replayable(trace), trace.api_calls
    if base is None or calls is None or not exceptions:
        return True
    at = calls["start_ns"][base.graph.api_rows[base.graph.api_rows >= 0]]
    begun = steps(trace).host_start_ns[[one.step for one in exceptions]]
    return bool(((begun >= at.min()) & (begun <= at.max())).all())
