"""The steps of a recording and how long each took.

The host runs ahead of the device, so the span of a marker on the host is often the time to issue
a step, not to do it. A step here runs from the completion of the step before it to its own: the
end of the last device operation that it launched, or of its host span if that is later. On a
recording without a device it is the host span's end. The first step has no completion before it,
begins at its first activity, and is partial.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.graph_captures import graph_captures
from pinchpoint.analysis.host.launches import (
    SLOWEST_START_NS,
    Issued,
    issued,
    main_thread,
    own_work,
)
from pinchpoint.analysis.statistics import median, percentile
from pinchpoint.analysis.steps.candidates import OF_WHOLE_RUNS
from pinchpoint.analysis.steps.compiled_calls import steps_by_calls
from pinchpoint.analysis.steps.markers import marked_spans
from pinchpoint.analysis.steps.module_nesting import module_calls, outermost
from pinchpoint.analysis.steps.repetition import Spans, infer_steps
from pinchpoint.analysis.steps.single_step import single_step
from pinchpoint.frozen import dataclass
from pinchpoint.trace import ApiKind, DeviceKind, HostKind, MemoryKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.intervals import contains, covered_before, flatten

Times = NDArray[np.int64]

OUTLIER_DEVIATIONS = (
    5.0  # robust standard deviations from the median; 3.5 is Iglewicz and Hoaglin's
)
OUTLIER_FLOOR_RATIO = 0.10  # a step within a tenth of the median is never called an outlier
MAD_TO_SIGMA = 1.4826  # of a normal distribution
IRREGULAR_RATIO = 2.0  # longest to shortest step of the middle half: no step is typical
FEWEST_TO_SETTLE = 6  # steps that show a trend
SETTLING_TREND = -0.75  # rank correlation of duration and order
SETTLED_RATIO = 0.9  # later half against the earlier one
LOST_LAUNCHES_RATIO = 0.05  # more launches without device work than this: the step is incomplete
SHORT_PAUSE_RATIO = 0.05  # of the step: between earlier work and its own, nobody's time
STRAY_WORK_RATIO = 0.05  # of a wait, or of a step's operations: the device was not at work on these
NEARLY_ALL_RATIO = 0.95  # of the launches: copies in and results out may be outside the model
WHOLE_STEP_RATIO = 0.95  # of the device operations of the fullest step, in a file that is cut off

_ENCLOSING = (HostKind.PYTHON, HostKind.MODULE, HostKind.OVERHEAD)


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of a trace; arrays have one element a step, in order.

    Windows touch: ``start_ns[i] == end_ns[i - 1]``. There is always at least one window unless
    the trace has no events: without steps it is the whole recording.

    ``typical`` marks the steps whose mean is ``typical_ns`` (rounded half up): the middle half of
    the complete ones by duration, of three the median one, of two both. Two exceptions, because a
    user asks how long the work takes: where the middle half itself is irregular (a loader that
    delivers in bursts, a save every few steps) all complete steps count, and where steps get
    faster through the recording, and then no more, only its later half does. Without a complete
    step it is the longest partial one.
    """

    how: Literal["marker", "inferred", "none"]
    basis: str  # what the steps were found by, or why there are none
    confidence: float | None  # 0 to 1; None unless inferred
    thread: int  # the host thread that runs them; NOBODY without one
    number: Times
    host_start_ns: Times
    host_end_ns: Times
    start_ns: Times
    end_ns: Times
    complete: Mask
    typical: Mask
    choice: str  # in words, which steps are the typical ones
    typical_ns: int | None
    spread_ns: tuple[int, int] | None  # 10th and 90th percentile of complete steps
    outliers: tuple[int, ...]  # positions of complete steps far from the median

    def __len__(self) -> int:
        return len(self.number)

    @property
    def durations_ns(self) -> Times:
        """Duration of each complete step, in order."""
        lasting: Times = (self.end_ns - self.start_ns)[self.complete]
        return lasting


@once_per_trace
def steps(trace: Trace) -> Steps:
    """The steps: from markers, else inferred from what repeats, from calls of the one compiled
    function, or from the only optimizer step; else the whole as one window."""
    marked = marked_spans(trace)
    if marked is not None:
        return _timed(trace, marked, "marker")
    inferred = infer_steps(trace)
    spans = inferred.spans or steps_by_calls(trace) or single_step(trace)
    if spans is None:
        return _whole(trace, _of_empty_markers(trace, inferred.reason))
    return _timed(trace, replace(spans, basis=_of_empty_markers(trace, spans.basis)), "inferred")


def _of_empty_markers(trace: Trace, reason: str) -> str:
    """The reason, where markers were recorded and none of them was used."""
    marked = trace.steps is not None and len(trace.steps) > 0
    return reason.replace("no markers", "markers hold no work", 1) if marked else reason


def _timed(trace: Trace, spans: Spans, how: Literal["marker", "inferred"]) -> Steps:
    completion, complete = completions(trace, spans.start_ns, spans.end_ns)
    if spans.partial is not None:
        complete &= ~spans.partial
    first = _begins(trace, int(spans.start_ns[0]), int(completion[0]))
    start = np.concatenate(([first], completion[:-1]))
    complete[0] = False
    if trace.only_steps is not None:
        complete &= np.isin(np.arange(len(complete)), trace.only_steps)
    lasting = completion - start
    typical, choice = _typical(lasting, complete)
    return Steps(
        how=how,
        basis=spans.basis,
        confidence=spans.confidence,
        thread=main_thread(trace),
        number=spans.number,
        host_start_ns=spans.start_ns,
        host_end_ns=spans.end_ns,
        start_ns=start,
        end_ns=completion,
        complete=complete,
        typical=typical,
        choice=choice,
        typical_ns=_rounded_mean(lasting[typical]),
        spread_ns=_spread(lasting[complete]),
        outliers=_outliers(lasting, complete),
    )


def _begins(trace: Trace, marked_ns: int, ended_ns: int) -> int:
    """Where the first step begins: at its first own operation if the device was at work that was
    issued before until then; if it then paused for long, where that pause began.

    What ran before the first operation with a recorded call, and has none itself, was issued
    before the recording began.
    """
    ops, by = trace.device_ops, issued(trace)
    if ops is None:
        return min(marked_ns, ended_ns)
    counts, start = own_work(trace), ops["start_ns"]
    own = by.linked & counts & (by.start_ns >= marked_ns)
    begun = int(start[own].min()) if own.any() else marked_ns
    unseen = _after_what_is_not_recorded(by, ops, own)
    if unseen is not None:
        return min(max(unseen, marked_ns), ended_ns)
    done = int(ops.end_ns[counts & (start < begun)].max(initial=marked_ns))
    if done <= marked_ns:
        return min(marked_ns, ended_ns)
    short = begun - done < SHORT_PAUSE_RATIO * (ended_ns - begun)
    return min(max(begun, marked_ns) if short else done, ended_ns)


def _after_what_is_not_recorded(by: Issued, ops: Table, own: Mask) -> int | None:
    """When the device was done with work that was issued before the recording, if it held up the
    first step: an operation that stands first on its stream started long after its call, while
    nothing recorded ran, or so little that the device was not at work on it.

    A copy of ordinary host memory says nothing: its pages are made ready before it starts."""
    rows = np.flatnonzero(own)
    place = np.stack((ops["device"][rows], ops["stream"][rows]), axis=1)
    heads = rows[np.unique(place, axis=0, return_index=True)[1]]  # rows stand in order of time
    ready = np.isin(ops.filled("from_memory", 0), (MemoryKind.DEVICE, MemoryKind.PINNED))
    heads = heads[(ready | (ops["kind"] != DeviceKind.COPY))[heads]]
    start, called = ops["start_ns"], by.end_ns
    late = heads[start[heads] - called[heads] > SLOWEST_START_NS]
    if not len(late):
        return None
    busy = flatten(start, ops.end_ns)
    seen = covered_before(busy, start[late]) - covered_before(busy, called[late])
    unseen = late[seen < STRAY_WORK_RATIO * (start[late] - called[late])]
    if not len(unseen):
        return None
    found = int(start[unseen].max())
    before = np.count_nonzero(start[rows] < found)
    return found if before <= STRAY_WORK_RATIO * len(rows) else None


def completions(trace: Trace, start_ns: Times, end_ns: Times) -> tuple[Times, Mask]:
    """When each host span was done, device work included, and whether that work is all there.

    ``start_ns`` must be sorted. A device operation belongs to the span during which its call was
    made; where the recording links no operation to any call, to the span in which it started.
    Completions never run backwards.
    """
    done = end_ns.copy()
    ops = trace.device_ops
    if ops is not None and len(ops):
        by = issued(trace)
        counts = own_work(trace) & (by.linked if by.linked.any() else True)
        at, ends = by.start_ns[counts], ops.end_ns[counts]
        which = np.searchsorted(start_ns, at, "right") - 1
        inside = (which >= 0) & (at < end_ns[which])
        np.maximum.at(done, which[inside], ends[inside])
    return np.maximum.accumulate(done), ~_lost_work(trace, start_ns, end_ns)


def _lost_work(trace: Trace, start_ns: Times, end_ns: Times) -> Mask:
    """Spans with clearly more launches without device work than the typical span.

    What is captured as a graph is not launched, and has none.
    """
    lost = np.zeros(len(start_ns), np.bool_)
    calls = trace.api_calls
    by = issued(trace)
    if trace.source.truncated:
        lost = _cut_work(trace, start_ns, end_ns)
    if calls is None or not by.linked.any():
        return lost
    launch = np.isin(calls["kind"], (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH))
    launch &= ~contains(graph_captures(trace), calls["start_ns"])
    answered = np.zeros(len(calls), np.bool_)
    answered[by.call[by.linked]] = True
    which = np.searchsorted(start_ns, calls["start_ns"], "right") - 1
    launch &= (which >= 0) & (calls["start_ns"] < end_ns[which])
    asked = np.bincount(which[launch], minlength=len(start_ns))
    missing = np.bincount(which[launch & ~answered], minlength=len(start_ns))
    ratio = missing / np.maximum(asked, 1)
    return lost | (ratio > LOST_LAUNCHES_RATIO + median(ratio.tolist()))


def _cut_work(trace: Trace, start_ns: Times, end_ns: Times) -> Mask:
    """Spans of a file that was cut off with clearly less device work than the fullest; the last.

    Files are not in order of time, so what is missing may be of any step, calls included.
    """
    by = issued(trace)
    lost = np.zeros(len(start_ns), np.bool_)
    lost[-1:] = True
    if by.linked.any():
        at = by.start_ns[by.linked & own_work(trace)]
        which = np.searchsorted(start_ns, at, "right") - 1
        inside = (which >= 0) & (at < end_ns[which])
        count = np.bincount(which[inside], minlength=len(start_ns))
        lost |= count < WHOLE_STEP_RATIO * count.max()
    return lost


def _typical(lasting: Times, complete: Mask) -> tuple[Mask, str]:
    """Which steps stand for all, and why these; see Steps."""
    rows = np.flatnonzero(complete)
    if not len(rows):
        return _chosen(lasting, np.array([np.argmax(lasting)])), "a partial step: none is complete"
    words = f"of {len(rows)} complete steps"
    if len(rows) >= FEWEST_TO_SETTLE and _settled(lasting[rows]):
        rows = rows[len(rows) // 2 :]
        words = f"of the later half {words}, which got faster while recording"
    order = rows[np.argsort(lasting[rows], kind="stable")]
    n = len(order)
    half = n // 4 if n >= 4 else (n - 1) // 2  # of two steps neither is the usual one
    middle = order[half : n - half]
    around = order if n < 4 else middle
    if lasting[around[-1]] > IRREGULAR_RATIO * lasting[around[0]]:
        return _chosen(lasting, rows), f"all {words}: too different for a typical one"
    return _chosen(lasting, middle), f"the middle {'half ' if n >= 4 else ''}{words}"


def _chosen(lasting: Times, rows: NDArray[np.intp]) -> Mask:
    mask = np.zeros(len(lasting), np.bool_)
    mask[rows] = True
    return mask


def _settled(values: Times) -> bool:
    """Whether the steps got faster and then no more. Where the later half still does as much, it is
    the program's way: work that shrinks, of which no half stands for all."""
    later = values[len(values) // 2 :]
    return _settling(values) and not (len(later) >= FEWEST_TO_SETTLE and _settling(later))


def _settling(values: Times) -> bool:
    """Whether the steps get faster from first to last, as they do while a profiler warms up."""
    half = len(values) // 2
    rank = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    trend = np.corrcoef(rank, np.arange(len(values)))[0, 1]  # Spearman's
    faster = np.median(values[half:]) < SETTLED_RATIO * np.median(values[:half])
    return bool(trend <= SETTLING_TREND and faster)


def _rounded_mean(values: Times) -> int:
    n = len(values)
    return (2 * int(values.sum()) + n) // (2 * n)


def _spread(values: Times) -> tuple[int, int] | None:
    if not len(values):
        return None
    return round(percentile(values, 10)), round(percentile(values, 90))


def _outliers(lasting: Times, complete: Mask) -> tuple[int, ...]:
    values = lasting[complete]
    if len(values) < 4:  # too few to say what is usual
        return ()
    middle = median(values.tolist())
    away = np.abs(values - middle)
    scatter = MAD_TO_SIGMA * median(away.tolist())
    limit = max(OUTLIER_DEVIATIONS * scatter, OUTLIER_FLOOR_RATIO * middle)
    return tuple(np.flatnonzero(complete)[away > limit].tolist())


def _whole(trace: Trace, reason: str) -> Steps:
    low, high = _extent(trace)
    if (alone := _only_pass(trace)) is not None:
        name, begun = alone
        low, reason = (
            min(low, begun),
            f"no markers; one call of {name!r} launches nearly everything",
        )
    edges = np.array([[low], [high]] if high > low else np.zeros((2, 0)), np.int64)
    start, end = edges
    whole = np.ones(len(start), np.bool_)
    return Steps(
        how="none",
        basis=reason,
        confidence=None,
        thread=main_thread(trace),
        number=np.zeros(len(start), np.int64),
        host_start_ns=start,
        host_end_ns=end,
        start_ns=start,
        end_ns=end,
        complete=~whole,
        typical=whole,
        choice="the whole recording",
        typical_ns=high - low if high > low else None,
        spread_ns=None,
        outliers=(),
    )


def _only_pass(trace: Trace) -> tuple[str, int] | None:
    """Name and beginning of the call of a module that launched nearly all work; None without one,
    or if the device was at work before it."""
    calls, ops, by = module_calls(trace), trace.device_ops, issued(trace)
    if calls is None or ops is None or not by.linked.any():
        return None
    at = by.start_ns[by.linked & own_work(trace)]
    first = int(ops["start_ns"].argmin())
    if not by.linked[first] or ops["start_ns"][first] - by.end_ns[first] > SLOWEST_START_NS:
        return None  # the device was at work that is not in the file
    outer = outermost(calls)
    held = np.searchsorted(np.sort(at), outer.end_ns) - np.searchsorted(
        np.sort(at), outer["start_ns"]
    )
    most = int(held.argmax())
    begun = int(outer["start_ns"][most])
    if held[most] < NEARLY_ALL_RATIO * len(at):
        return None
    return trace.text(outer, "name", most) or "a module", begun


def _extent(trace: Trace) -> tuple[int, int]:
    """From the first to the last device operation, or operator where there is no device.

    What the device did before its first recorded operation is not known, so it is left out.
    Open Python frames reach far beyond what they are about and count only where nothing else
    was recorded. Where a file is of a whole run of a graph, that begins with what the host does.
    """
    host = trace.host_ops
    inner = None if host is None else host.take(~np.isin(host["kind"], _ENCLOSING))
    device = None if trace.device_ops is None else trace.device_ops.take(own_work(trace))
    if trace.source.recorder in OF_WHOLE_RUNS:
        both = [rows for rows in (device, inner) if rows is not None and len(rows)]
        if both:
            first = min(int(rows["start_ns"].min()) for rows in both)
            return first, max(int(rows.end_ns.max()) for rows in both)
    for rows in (device, inner, host, trace.api_calls):
        if rows is not None and len(rows):
            return int(rows["start_ns"].min()), int(rows.end_ns.max())
    return 0, 0
