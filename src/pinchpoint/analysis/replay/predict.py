"""What would the step be? The question that findings and people ask replay."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.host.launches import own_work
from pinchpoint.analysis.replay.apply import apply
from pinchpoint.analysis.replay.beyond_replay import (
    Replayed,
    longest_left_ns,
    of_timed_ns,
    replayed,
    rest_as_recorded,
    waits_beyond_ns,
    with_timed,
)
from pinchpoint.analysis.replay.changes import AddHostTime, Change, MoveToOwnStream
from pinchpoint.analysis.replay.graph import Graph
from pinchpoint.analysis.replay.least_step import (
    at_power_limit_ns,
    device_ns,
    floored,
    kept_ns,
    leave_the_device,
    queued_ns,
    sure_ns,
)
from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.analysis.replay.ranges import AFTER_A_FIX, AS_IT_IS, Made, made_of, range_ns
from pinchpoint.analysis.replay.recording_cost import calibrated
from pinchpoint.analysis.replay.running_ahead import (
    HOLD_UP,
    ahead_of_device_ns,
    bare_launches_ns,
    limited_ns,
)
from pinchpoint.analysis.replay.window import Clean, Replayable, clean_window, replayable
from pinchpoint.analysis.statistics import in_bursts, percentile
from pinchpoint.analysis.steps.steps import Steps, steps
from pinchpoint.analysis.steps.timed import timed_by_run
from pinchpoint.trace import ApiKind, Trace, once_per_trace
from pinchpoint.trace.intervals import covered_before, flatten

# The same work under load: an H100's 1.98 GHz fall to 1.4 at its power limit.
OTHER_WORK_RATIO = 0.3


@once_per_trace
def corrected_range_ns(trace: Trace) -> tuple[int, int] | None:
    """Between what the step without the profiler may be; see :mod:`ranges`.

    10th and 90th percentile of measured steps, where the same run measured them; of steps that
    come in bursts, two standard errors around their mean.
    """
    if timed := timed_ns(trace):
        low, high = percentile(timed, 10), percentile(timed, 90)
        if comes_in_bursts(trace):
            mean, error = np.mean(timed), np.std(timed) / np.sqrt(len(timed))
            low, high = max(mean - 2 * error, np.min(timed)), mean + 2 * error
        usual = corrected_step_ns(trace) or 0
        low, high = with_doubt_of_launches(trace, usual, low, high)
        # The host is timed: it runs ahead while it fills a queue, which no step does for long.
        low = max(low, min(device_busy_ns(trace), usual))
        return round(low), round(high)
    made = corrected_made(trace)
    return None if made is None else range_ns(made, AS_IT_IS)


def corrected_made(trace: Trace) -> Made | None:
    """What the step without the profiler is made of; None where it was timed or is not known."""
    return None if timed_ns(trace) else _estimated_made(trace)


def _estimated_made(trace: Trace) -> Made | None:
    step, base, clean = _estimated_step_ns(trace), replayable(trace), clean_window(trace)
    if step is None or base is None or clean is None:
        return None
    periods, uneven = _usual_periods_ns(steps(trace)), _uneven_ratio(trace)
    made = made_of(step, clean.graph, clean.graph, periods, uneven_ratio=uneven)
    return replace(made, recording_ns=_taken_out_ns(trace, step))


def _usual_periods_ns(found: Steps) -> NDArray[np.int64]:
    """Durations of the complete steps that the typical one stands for: without those that stand
    out, unless the typical step is the mean of all because they are too different."""
    usual = found.complete.copy()
    usual[list(found.outliers)] = False
    counted = found.complete if (found.typical[~usual] & found.complete[~usual]).any() else usual
    periods: NDArray[np.int64] = (found.end_ns - found.start_ns)[counted]
    return periods if len(periods) else found.durations_ns


def _recording_ns(trace: Trace) -> float:
    """What recording adds to the typical step."""
    return _taken_out_ns(trace, corrected_step_ns(trace))


def _taken_out_ns(trace: Trace, corrected: int | None) -> float:
    typical = steps(trace).typical_ns
    return float(max(typical - corrected, 0)) if typical and corrected else 0.0


# Of the device's work for a step: clocks and power make recorded work by a few per cent longer, but
# never twice as long. Less is no step, and only launches it.
LAUNCHED_RATIO = 0.5


@once_per_trace
def corrected_step_ns(trace: Trace) -> int | None:
    """The step without the profiler's own work: measured in the same run, else estimated.

    The median of measured steps, or where they come in bursts (batches that workers finish
    together) and were recorded with one, the mean, which is what a step costs. A host that launches
    several steps before it waits for them times launches: their mean is a step, between the
    device's work for one and a recorded one. An estimate is no shorter than the device's work, of
    which recording takes no part.
    """
    if timed := timed_ns(trace):
        busy_ns, typical_ns = device_busy_ns(trace), steps(trace).typical_ns
        if typical_ns and np.median(timed) < LAUNCHED_RATIO * busy_ns <= np.mean(timed):
            return int(np.clip(np.mean(timed), busy_ns, max(busy_ns, typical_ns)))
        return int(np.mean(timed) if comes_in_bursts(trace) else np.median(timed))
    return _estimated_step_ns(trace)


def _estimated_step_ns(trace: Trace) -> int | None:
    base, clean, typical = replayable(trace), clean_window(trace), steps(trace).typical_ns
    if base is None or clean is None or typical is None:
        return None
    estimate = int(typical * min(clean.mean_ns / base.settled_ns, 1.0))
    least = max(device_busy_ns(trace), round(at_power_limit_ns(trace)))
    return max(estimate, min(least, typical))


def comes_in_bursts(trace: Trace) -> bool:
    """Whether the steps that the same run timed come in bursts, and one was recorded.

    Of what the recorded steps have nothing, replay shows nothing. False where the run timed none.
    """
    timed = timed_ns(trace)
    if not timed or not in_bursts(timed):
        return False
    return bool(steps(trace).durations_ns.max(initial=0) >= np.mean(timed))


def device_busy_ns(trace: Trace) -> int:
    """Time of the typical step in which the device works."""
    busy, typical = _busy_by_step_ns(trace), steps(trace).typical
    return int(busy[typical].mean()) if len(busy) else 0


def _uneven_ratio(trace: Trace) -> float:
    """By how much the device's work differs between typical steps, as a share of it.

    0 where it differs by more than clocks do: then it is other work, and steps differ.
    """
    busy = _busy_by_step_ns(trace)
    busy = busy[steps(trace).typical] if len(busy) else busy
    apart = float(np.ptp(busy) / busy.mean()) if len(busy) > 1 and busy.any() else 0.0
    return apart if apart < OTHER_WORK_RATIO else 0.0


@once_per_trace
def _busy_by_step_ns(trace: Trace) -> NDArray[np.int64]:
    """Time of each step in which the device works; empty without a device.

    Replay does not know operations whose launching call is not in the file.
    """
    ops, found = trace.device_ops, steps(trace)
    if ops is None or not len(ops):
        return np.zeros(0, np.int64)
    mine = ops.take(own_work(trace))
    busy = flatten(mine["start_ns"], mine.end_ns)
    inside: NDArray[np.int64] = covered_before(busy, found.end_ns) - covered_before(
        busy, found.start_ns
    )
    return inside


def what_if(
    trace: Trace,
    changes: Sequence[Change],
    *,
    every_step: bool = False,
    runs_ahead: bool = False,
) -> Prediction | None:
    """The step after ``changes``, without recording cost; None where the trace cannot be replayed.

    The corrected step times the ratio of two replays, with and without the changes, so that what
    replay does not model cancels out (:mod:`beyond_replay`); the device's work counts as it was
    recorded. ``every_step`` asks for the mean of all steps, for causes that show in some only. It
    is no shorter than the work that the changes leave: :mod:`least_step`. ``runs_ahead`` asks what
    a fix is likely to win where the host is ahead of its device then, beyond what replay shows.
    """
    base, clean = replayable(trace), clean_window(trace)
    if base is None or clean is None:
        return None
    raw = apply(trace, clean.graph, changes)
    graph = floored(trace, clean.graph, raw, changes)
    periods = base.periods_ns(graph, every_step=every_step)
    known = _before_and_after(trace, base, clean, graph, every_step)
    unbound = _before_and_after(trace, base, clean, raw, every_step)
    if known is None or unbound is None:
        return None
    before, after = known
    counted = np.ones(graph.steps, np.bool_) if every_step else base.counted
    sure = min(sure_ns(trace, clean.graph, counted, changes, every_step=every_step), before)
    warm = min(at_power_limit_ns(trace, changes, every_step=every_step), before)
    kept = kept_ns(trace, changes, every_step=every_step)
    after, raw_ns = (
        max(step, warm, min(max(queued_ns(trace, of, counted), kept), before))
        for step, of in ((max(after, sure), graph), (unbound[1], raw))
    )
    uneven, saving = _uneven_ratio(trace), before - after
    made = made_of(after, graph, clean.graph, periods, uneven_ratio=uneven, saving_ns=saving)
    least_ns = max(sure, warm, kept, bare_launches_ns(graph))
    ahead = min(ahead_of_device_ns(before, clean.graph, made), after - least_ns)
    if runs_ahead and ahead > 0 and all(isinstance(one, HOLD_UP) for one in changes):
        shortest = made.shortest_ns * (after - ahead) / after
        after -= ahead
        saved = saving + ahead
        made = replace(made, step_ns=after, saving_ns=saved, ahead_ns=ahead, shortest_ns=shortest)
    cost = _recording_ns(trace) * min(made.host_ns / max(before - made.device_ns, 1.0), 1.0)
    made = replace(made, recording_ns=cost, limited_ns=limited_ns(graph, changes))
    least, most = range_ns(made, AFTER_A_FIX)
    # Where the device does other work, clocks of the rest may be a little higher than recorded.
    clocks = 0.0 if leave_the_device(changes) else AS_IT_IS.device
    bound = min(ceil((1 - clocks) * sure), int(after))
    if timed_ns(trace):
        most = round(most * rest_as_recorded(trace, before, clean.mean_ns))
    if not every_step:
        most = max(most, longest_left_ns(before, clean.mean_ns, float(periods.mean())))
    between = max(least, bound), min(most, max(int(before), int(after)))
    return Prediction(int(after), between, int(before), int(raw_ns), bound, made)


def after_saving(
    trace: Trace,
    saving_ns: tuple[int, int],
    leaves_ns: int | None = None,
    *,
    base_ns: int | None = None,
    likely_ns: int | None = None,
) -> Prediction | None:
    """The step after a fix whose least and most saving is known otherwise than by replay.

    Said is the middle of both, or what is ``likely_ns`` of it. It is no shorter than ``leaves_ns``
    of device work, by default all that is recorded, collectives beside the rest. ``base_ns`` is the
    step before, by default the typical one as corrected.
    """
    base = corrected_step_ns(trace) if base_ns is None else base_ns
    if base is None:
        return None
    warm = 0.0
    if leaves_ns is None:
        warm = min(at_power_limit_ns(trace), base)
        apart = np.flatnonzero(category_of_device_ops(trace) == Category.COLLECTIVE)
        leaves_ns = ceil(device_ns(trace, (MoveToOwnStream(apart),)))
    bound = min(leaves_ns, base)
    likely = sum(saving_ns) // 2 if likely_ns is None else likely_ns
    most, middle, least = (
        base - _of_timed_ns(trace, saved_ns, leaves_ns)
        for saved_ns in (saving_ns[0], likely, saving_ns[1])
    )
    middle = max(middle, ceil(warm))
    most = max(most, middle)
    step, low, high = (max(after, bound) for after in (middle, least, most))
    return Prediction(step, (low, high), base, max(middle, 0), bound)


def _of_timed_ns(trace: Trace, saving_ns: int, leaves_ns: int) -> int:
    """Of a recorder whose cost is not known: what is won of the step that the run timed."""
    typical_ns, usual_ns = steps(trace).typical_ns, corrected_step_ns(trace)
    if calibrated(trace) or not typical_ns or not usual_ns:
        return saving_ns
    recorded = Replayed(typical_ns, device_busy_ns(trace))
    return of_timed_ns(saving_ns, usual_ns, recorded, leaves_ns)


def _before_and_after(
    trace: Trace, base: Replayable, clean: Clean, after: Graph, every_step: bool
) -> tuple[float, float] | None:
    """The step without recording cost, and the one that replays as ``after``.

    The mean of all steps is no shorter than the typical one is after the same changes: what they
    take away of rare long steps is not taken from the others.
    """
    usual = corrected_step_ns(trace)
    if usual is None:
        return None
    periods = base.periods_ns(after, every_step=True)
    left = replayed(after, float(periods[base.counted].mean()))
    typical = usual * min(left.step_ns / clean.mean_ns, 1.0)
    if timed := timed_ns(trace):
        typical = with_timed(usual, clean.step, left, _recording_ns(trace))
    if not every_step:
        return usual, typical
    mean, mean_after = _mean_step_ns(trace, base, clean), float(periods.mean())
    if timed and not comes_in_bursts(trace):  # recorded steps may have had the cause more often
        # Of each recorded step, at most.
        taken = (clean.every_ns - mean_after) * usual / clean.mean_ns
        taken += waits_beyond_ns(trace, mean - usual, clean.graph, after)
        return mean, min(max(usual * mean_after / clean.mean_ns, mean - taken), mean)
    return mean, min(max(mean * min(mean_after / clean.every_ns, 1.0), typical), mean)


# ------------------------------------------------------------------------------------------------
# Steps that the same run timed: CUPTI stays loaded once torch has recorded, and launches cost more.

# More than launches were seen to cost: 3.1 and 6.4 µs on the hosts of two H200s, by
# benchmarks/window_leaves.py.
MOST_MORE_NS = 8_000


@once_per_trace
def timed_ns(trace: Trace) -> tuple[int, ...]:
    """Steps that the same run timed without the profiler, less what launches cost more since."""
    measured, less_ns = timed_by_run(trace), launches_ns(trace)
    if not less_ns or trace.run is None or trace.run.launch is None:
        return measured
    unloaded = trace.run.launch.unloaded_steps
    usual = float(np.median(measured[unloaded:]))
    rest = (ns - round(less_ns * min(ns / usual, 1.0)) for ns in measured[unloaded:])
    return (*measured[:unloaded], *rest)


@once_per_trace
def launches_ns(trace: Trace) -> int:
    """What the launches of a step cost more since the recording, of a usual step that was timed
    then; 0 where that is not known. By replay: a host that is ahead of its device hides it."""
    launch = trace.run.launch if trace.run else None
    measured = timed_by_run(trace)[launch.unloaded_steps :] if launch else ()
    if launch is None or not launch.more_ns or not measured:
        return 0
    return _hidden_in_ns(trace, float(np.median(measured)), launch.more_ns)


def _hidden_in_ns(trace: Trace, step_ns: float, more_ns: int) -> int:
    """Of a step, what ``more_ns`` of each launch make it longer by."""
    base, clean, calls = replayable(trace), clean_window(trace), trace.api_calls
    if base is None or clean is None or calls is None:
        return 0
    launches = np.flatnonzero(calls["kind"] == ApiKind.LAUNCH)
    loaded = base.mean_ns(apply(trace, clean.graph, (AddHostTime(launches, more_ns),)))
    return round(step_ns * (1 - min(clean.mean_ns / max(loaded, 1.0), 1.0)))


def with_doubt_of_launches(
    trace: Trace, step_ns: float, low: float, high: float
) -> tuple[float, float]:
    """The range of a step that was timed, wider by what is not known of its launches.

    What was taken out for them is time of the host, and as doubtful.
    """
    doubt, usual = AS_IT_IS.host * launches_ns(trace), corrected_step_ns(trace)
    least = least_by_launches_ns(trace)
    if least is not None and usual is not None:
        low = min(low, step_ns - max(usual - least, 0))
    return low - doubt, high + doubt


@once_per_trace
def least_by_launches_ns(trace: Trace) -> int | None:
    """What the step may be where launches may cost more by an unknown time; None where they do not.

    The recording has it shorter than any usual step that was timed, and launches can explain that.
    """
    run, timed = trace.run, timed_ns(trace)
    if run is None or run.launch is not None or not timed or not calibrated(trace):
        return None
    made, least, usual = _estimated_made(trace), percentile(timed, 10), np.median(timed)
    if made is None or comes_in_bursts(trace):
        return None
    longest = range_ns(made, AS_IT_IS)[1]
    if longest >= least or usual - _hidden_in_ns(trace, usual, MOST_MORE_NS) > longest:
        return None
    return round(made.step_ns)


def _mean_step_ns(trace: Trace, base: Replayable, clean: Clean) -> float:
    """The mean of all complete steps, recording cost taken out.

    The many steps that the same run timed without the profiler know better how often a cause comes
    than the few that were recorded.
    """
    if timed := timed_ns(trace):
        return float(np.mean(timed))
    lasting = steps(trace).durations_ns
    recorded = float(lasting.mean()) if len(lasting) else base.recorded_ns
    if not base.settled_every_ns:
        return recorded
    return recorded * min(clean.every_ns / base.settled_every_ns, 1.0)
