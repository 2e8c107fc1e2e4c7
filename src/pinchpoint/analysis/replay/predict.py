"""What would the step be? The question that findings and people ask replay."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.host.launches import own_work
from pinchpoint.analysis.replay.apply import apply
from pinchpoint.analysis.replay.changes import Change, MoveToOwnStream, RemoveRecordingCost
from pinchpoint.analysis.replay.graph import Graph, build
from pinchpoint.analysis.replay.least_step import (
    at_power_limit_ns,
    device_ns,
    floored,
    kept_ns,
    queued_ns,
    sure_ns,
)
from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.analysis.replay.ranges import AFTER_A_FIX, AS_IT_IS, Made, made_of, range_ns
from pinchpoint.analysis.replay.simulate import all_passes, simulate
from pinchpoint.analysis.steps.steps import Steps, steps
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.intervals import covered_before, flatten

MOST_NODES = 12_000  # calls of a replayed window; more steps are left out beyond it
SAME_STEP_RATIO = 0.05  # recorded steps of one kind differ by as much
OTHER_WORK_RATIO = (
    0.3  # the same work under load: an H100's 1.98 GHz fall to 1.4 at its power limit
)
BURST_PERCENTILE = 95  # a round of 16 workers makes one step in 16 wait for all of them
BURST_RATIO = 3.0  # of the median; steps that vary by themselves stay below it


@dataclass(frozen=True, eq=False)
class Replayable:
    """A trace's graph, and what replaying it unchanged gives against what was recorded."""

    graph: Graph
    counted: NDArray[np.bool_]  # the replayed steps that stand for all
    recorded_ns: float  # their mean period as recorded
    identity_ns: float  # as replayed once, unchanged, from the recorded state
    settled_ns: float  # as replayed unchanged until the window repeats itself
    settled_every_ns: float  # the same for all replayed steps

    @property
    def identity_error(self) -> float:
        """Relative error of the unchanged replay."""
        return self.identity_ns / self.recorded_ns - 1

    def periods_ns(self, graph: Graph, *, every_step: bool = False) -> NDArray[np.int64]:
        """Periods of the counted steps, or of all, when ``graph`` is replayed."""
        periods = np.array(simulate(graph).durations_ns, np.int64)
        return periods if every_step else periods[self.counted]

    def mean_ns(self, graph: Graph, *, every_step: bool = False) -> float:
        """The mean of those periods."""
        return float(self.periods_ns(graph, every_step=every_step).mean())


@once_per_trace
def replayable(trace: Trace) -> Replayable | None:
    """The graph of as many complete steps as are worth replaying; None where it cannot be."""
    found = steps(trace)
    usable = found.complete if found.complete.any() else found.typical
    if trace.api_calls is None or not usable.any():
        return None
    chosen = _window(trace, found, np.flatnonzero(usable))
    graph = build(trace, found.host_start_ns, found.host_end_ns, chosen)
    if graph is None or not len(graph.op_rows):
        return None
    periods = (found.end_ns - found.start_ns)[chosen]
    counted = _counted(found.typical[chosen], periods, found.typical_ns)
    before = int(found.start_ns[chosen.start])
    first, *_, last = (np.array(done.durations_ns) for done in all_passes(graph, before))
    recorded, identity, settled = (float(of[counted].mean()) for of in (periods, first, last))
    return Replayable(graph, counted, recorded, identity, settled, float(last.mean()))


def _counted(
    typical: NDArray[np.bool_], periods_ns: NDArray[np.int64], typical_ns: int | None
) -> NDArray[np.bool_]:
    """The typical steps without the first, which follows a seam when the window is repeated.

    With it, where the others alone are further from the typical step.
    """
    rest = typical.copy()
    rest[0] = False
    if not rest.any() or typical_ns is None:
        return typical
    apart = [abs(float(periods_ns[of].mean()) - typical_ns) for of in (rest, typical)]
    return rest if apart[0] <= max(apart[1], SAME_STEP_RATIO * typical_ns) else typical


def _window(trace: Trace, found: Steps, usable: NDArray[np.intp]) -> slice:
    """The run of complete steps with most typical ones in it, cut to MOST_NODES calls."""
    breaks = np.flatnonzero(np.diff(usable) > 1) + 1
    longest = max(np.split(usable, breaks), key=lambda run: int(found.typical[run].sum()))
    assert trace.api_calls is not None
    calls = np.sort(trace.api_calls["start_ns"])
    before = np.searchsorted(calls, found.host_start_ns)
    first = int(longest[np.argmax(found.typical[longest])])
    last = first + 1
    while last <= longest[-1] and before[last] - before[first] < MOST_NODES:
        last += 1
    return slice(first, last)


@dataclass(frozen=True, eq=False)
class _Clean:
    """The replayable window without recording cost, replayed: what all predictions start from."""

    graph: Graph
    mean_ns: float  # of the counted steps
    every_ns: float  # of all replayed steps


@once_per_trace
def _clean(trace: Trace) -> _Clean | None:
    base = replayable(trace)
    if base is None or base.settled_ns <= 0:
        return None
    graph = apply(trace, base.graph, (RemoveRecordingCost(),))
    periods = np.array(simulate(graph).durations_ns)
    counted, every = float(periods[base.counted].mean()), float(periods.mean())
    if counted <= 0 or every <= 0:  # steps without work of their own
        return None
    return _Clean(graph, counted, every)


@once_per_trace
def corrected_range_ns(trace: Trace) -> tuple[int, int] | None:
    """Between what the step without the profiler may be; see :mod:`ranges`.

    10th and 90th percentile of measured steps, where the same run measured them; of steps that
    come in bursts, two standard errors around their mean.
    """
    if timed := _timed(trace):
        low, high = np.percentile(timed, (10, 90))
        if comes_in_bursts(trace):
            mean, error = np.mean(timed), np.std(timed) / np.sqrt(len(timed))
            low, high = max(mean - 2 * error, np.min(timed)), mean + 2 * error
        # The host is timed: it runs ahead while it fills a queue, which no step does for long.
        low = max(low, min(_device_busy_ns(trace), corrected_step_ns(trace) or 0))
        return round(low), round(high)
    made = corrected_made(trace)
    return None if made is None else range_ns(made, AS_IT_IS)


def corrected_made(trace: Trace) -> Made | None:
    """What the step without the profiler is made of; None where it was timed or is not known."""
    step, base, clean = corrected_step_ns(trace), replayable(trace), _clean(trace)
    if _timed(trace) or step is None or base is None or clean is None:
        return None
    periods, uneven = _usual_periods_ns(steps(trace)), _uneven_ratio(trace)
    made = made_of(step, clean.graph, clean.graph, periods, uneven_ratio=uneven)
    return replace(made, recording_ns=_recording_ns(trace))


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
    typical, corrected = steps(trace).typical_ns, corrected_step_ns(trace)
    return float(max(typical - corrected, 0)) if typical and corrected else 0.0


@once_per_trace
def corrected_step_ns(trace: Trace) -> int | None:
    """The step without the profiler's own work: measured in the same run, else estimated.

    The median of measured steps, or where they come in bursts (batches that workers finish
    together) and were recorded with one, the mean, which is what a step costs. An estimate is no
    shorter than the device's work, of which recording takes no part.
    """
    if timed := _timed(trace):
        return int(np.mean(timed) if comes_in_bursts(trace) else np.median(timed))
    base, clean, typical = replayable(trace), _clean(trace), steps(trace).typical_ns
    if base is None or clean is None or typical is None:
        return None
    estimate = int(typical * min(clean.mean_ns / base.settled_ns, 1.0))
    least = max(_device_busy_ns(trace), round(at_power_limit_ns(trace)))
    return max(estimate, min(least, typical))


def comes_in_bursts(trace: Trace) -> bool:
    """Whether the steps that the same run timed come in bursts, and one was recorded.

    Of what the recorded steps have nothing, replay shows nothing. False where the run timed none.
    """
    timed = _timed(trace)
    if not timed or not _in_bursts(timed):
        return False
    return bool(steps(trace).durations_ns.max(initial=0) >= np.mean(timed))


def _in_bursts(timed: Sequence[int]) -> bool:
    """Whether long steps come so often that they are part of what a step usually costs."""
    late = np.percentile(timed, BURST_PERCENTILE, method="lower")
    return bool(late > BURST_RATIO * np.median(timed))


def _device_busy_ns(trace: Trace) -> int:
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
    trace: Trace, changes: Sequence[Change], *, every_step: bool = False
) -> Prediction | None:
    """The step after ``changes``, without recording cost; None where the trace cannot be replayed.

    The prediction is the corrected step times the ratio of two replays, with and without the
    changes, so that what replay does not model cancels out; but the device's work counts as it was
    recorded. ``every_step`` asks for the mean of all steps in place of the typical one, for causes
    that show in some steps only. It is no shorter than the work that the changes leave:
    :mod:`~pinchpoint.analysis.replay.least_step`.
    """
    base, clean = replayable(trace), _clean(trace)
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
    cost = _recording_ns(trace) * min(made.host_ns / max(before - made.device_ns, 1.0), 1.0)
    made = replace(made, recording_ns=cost)
    least, most = range_ns(made, AFTER_A_FIX)
    least = min(max(least, ceil(sure)), int(after))
    most = min(most, max(int(before), int(after)))
    return Prediction(int(after), (least, most), int(before), int(raw_ns), int(sure), made)


def after_saving(
    trace: Trace,
    saving_ns: tuple[int, int],
    leaves_ns: int | None = None,
    *,
    base_ns: int | None = None,
) -> Prediction | None:
    """The step after a fix whose least and most saving is known otherwise than by replay.

    It is no shorter than ``leaves_ns`` of device work, by default all that is recorded, collectives
    beside the rest. ``base_ns`` is the step before, by default the typical one as corrected.
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
    most, middle, least = base - saving_ns[0], base - sum(saving_ns) // 2, base - saving_ns[1]
    middle = max(middle, ceil(warm))
    most = max(most, middle)
    step, low, high = (max(after, bound) for after in (middle, least, most))
    return Prediction(step, (low, high), base, max(middle, 0), bound)


def _before_and_after(
    trace: Trace, base: Replayable, clean: _Clean, after: Graph, every_step: bool
) -> tuple[float, float] | None:
    """The step without recording cost, and the one that replays as ``after``.

    The mean of all steps is no shorter than the typical one is after the same changes: what they
    take away of rare long steps is not taken from the others.
    """
    usual = corrected_step_ns(trace)
    if usual is None:
        return None
    periods = base.periods_ns(after, every_step=True)
    typical = usual * min(float(periods[base.counted].mean()) / clean.mean_ns, 1.0)
    if not every_step:
        return usual, typical
    mean, replayed = _mean_step_ns(trace, base, clean), float(periods.mean())
    timed = _timed(trace)
    if timed and not comes_in_bursts(trace):  # the recorded steps may have had the cause more often
        taken = (
            (clean.every_ns - replayed) * usual / clean.mean_ns
        )  # of each recorded step, at most
        return mean, min(max(usual * replayed / clean.mean_ns, mean - taken), mean)
    return mean, min(max(mean * min(replayed / clean.every_ns, 1.0), typical), mean)


def _timed(trace: Trace) -> tuple[int, ...]:
    """Steps that the same run timed without the profiler."""
    return trace.run.unprofiled_step_ns if trace.run else ()


def _mean_step_ns(trace: Trace, base: Replayable, clean: _Clean) -> float:
    """The mean of all complete steps, recording cost taken out.

    The many steps that the same run timed without the profiler know better how often a cause comes
    than the few that were recorded.
    """
    if timed := _timed(trace):
        return float(np.mean(timed))
    lasting = steps(trace).durations_ns
    recorded = float(lasting.mean()) if len(lasting) else base.recorded_ns
    if not base.settled_every_ns:
        return recorded
    return recorded * min(clean.every_ns / base.settled_every_ns, 1.0)


@dataclass(frozen=True, eq=False)
class ReplayedWindow:
    """The window that predictions replay, without recording cost, and the step it stands for."""

    graph: Graph
    counted: NDArray[np.bool_]  # the replayed steps that stand for all
    mean_ns: float  # of the counted steps, as replayed
    step_ns: int  # the step without the profiler


@once_per_trace
def replayed_window(trace: Trace) -> ReplayedWindow | None:
    """What any number of changes can be tried on; None where the trace cannot be replayed."""
    base, clean, usual = replayable(trace), _clean(trace), corrected_step_ns(trace)
    if base is None or clean is None or usual is None:
        return None
    return ReplayedWindow(clean.graph, base.counted, clean.mean_ns, usual)
