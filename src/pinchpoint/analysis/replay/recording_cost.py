"""What recording itself costs the host: an estimate, to be taken out again.

Two parts. What the profiler does between steps (``profiler.step()``: state changes, buffer
handling) happens between the end of one ``ProfilerStep`` marker and the start of the next, where
no user code runs: it is taken out whole. What it does at the beginning and end of everything it
records is estimated with a cost per event. The costs were fitted to recordings of the same programs
with and without the profiler; ``benchmarks/recording_cost.py`` makes the fit again and prints what
is left of the error.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.trace import HostKind, Table, Trace
from pinchpoint.trace.arrays import Floats, Ints, Mask
from pinchpoint.trace.intervals import NONE, Intervals, covered_before, flatten

# The recorder that the costs below were measured with; see kineto/recorder.py for its signs.
CALIBRATED_RECORDER = "torch.profiler"


def why_uncalibrated(trace: Trace) -> str | None:
    """Why the costs below are not those of what made this recording; None where they are.

    Also None where nothing was timed, so that there is nothing to correct.
    """
    timed = (trace.host_ops, trace.api_calls, trace.device_ops)
    if not any(rows is not None and len(rows) for rows in timed):
        return None
    if trace.source.recorder is None:
        return "the file does not show what recorded it"
    if trace.source.recorder != CALIBRATED_RECORDER:
        return "no calibration for this recorder"
    worked = trace.device_ops is not None and len(trace.device_ops)
    if worked and (trace.host_ops is None or not len(trace.host_ops)):
        return "nothing of the host was recorded but its calls"
    return None


def calibrated(trace: Trace) -> bool:
    """Whether the costs below are those of what made this recording."""
    return why_uncalibrated(trace) is None


@dataclass(frozen=True)
class EventCosts:
    """Host time that recording adds, in nanoseconds an event."""

    operator_ns: float
    python_ns: float
    call_ns: float  # a runtime or driver call


# Fitted to programs recorded with and without the profiler, on H100s. Costs fitted to other program
# families do no better on a family, nor do costs scaled by how fast the recording shows the host to
# be (shortest launches, operators and gaps): benchmarks/recording_cost.py --held-out.
COSTS = EventCosts(operator_ns=7_000, python_ns=2_000, call_ns=6_000)
MOST_OF_A_GAP = 0.8  # of the time between two calls: no more is put down to recording
_NAMED = (HostKind.OPERATOR, HostKind.ANNOTATION, HostKind.COMPILE)
_FRAMES = (HostKind.PYTHON, HostKind.MODULE)


@dataclass(frozen=True, eq=False)
class RecordedEvents:
    """What was recorded inside windows; arrays with one element a window."""

    whole_ns: Ints  # the profiler's own steps
    room_ns: Ints  # the rest of the window
    operators: Floats  # an event whose one end is inside is half an event
    python: Floats
    calls: Floats

    def cost_ns(self, costs: EventCosts) -> Ints:
        """Host time that recording them took."""
        total = (
            self.operators * costs.operator_ns
            + self.python * costs.python_ns
            + self.calls * costs.call_ns
        )
        taken: Ints = np.minimum(total, MOST_OF_A_GAP * self.room_ns).astype(np.int64)
        return self.whole_ns + taken


def cost_in_windows(
    trace: Trace,
    threads: NDArray[np.intp],
    start_ns: Ints,
    end_ns: Ints,
    costs: EventCosts = COSTS,
) -> Ints:
    """Recording cost on ``threads`` inside each window ``[start, end)``; windows do not overlap.

    Zero for a recorder without calibration.
    """
    return events_in_windows(trace, threads, start_ns, end_ns).cost_ns(costs)


def events_in_windows(
    trace: Trace, threads: NDArray[np.intp], start_ns: Ints, end_ns: Ints
) -> RecordedEvents:
    """What was recorded on ``threads`` inside each window ``[start, end)``.

    Half of an event's cost falls at its start and half at its end; that of a call at its end.
    Nothing for a recorder without calibration.
    """
    nothing = np.zeros(len(start_ns))
    if not calibrated(trace):
        zero = np.zeros(len(start_ns), np.int64)
        return RecordedEvents(zero, zero, nothing, nothing, nothing)
    end_ns = np.maximum(end_ns, start_ns)
    between = profiler_steps(trace) if _marks(trace, threads) else NONE
    whole = covered_before(between, end_ns) - covered_before(between, start_ns)

    def inside(times: Ints) -> Floats:
        times = np.sort(times[~_inside(between, times)])
        low, high = np.searchsorted(times, start_ns, "left"), np.searchsorted(times, end_ns, "left")
        return (high - low).astype(np.float64)

    host, calls = trace.host_ops, trace.api_calls
    operators, python, called = nothing, nothing, nothing
    if host is not None and len(host):
        mine = np.isin(host["thread"], threads)
        operators = inside(_ends(host, mine & np.isin(host["kind"], _NAMED))) / 2
        python = inside(_ends(host, mine & np.isin(host["kind"], _FRAMES))) / 2
    if calls is not None and len(calls):
        called = inside(calls.end_ns[np.isin(calls["thread"], threads)])
    return RecordedEvents(whole, end_ns - start_ns - whole, operators, python, called)


def profiler_steps(trace: Trace) -> Intervals:
    """Time between consecutive ``ProfilerStep`` markers: the profiler's own."""
    rows = trace.steps
    if rows is None or len(rows) < 2:
        return NONE
    if not all(trace.names[n].startswith("ProfilerStep") for n in np.unique(rows["name"])):
        return NONE
    return flatten(rows.end_ns[:-1], rows["start_ns"][1:])


def _marks(trace: Trace, threads: NDArray[np.intp]) -> bool:
    return trace.steps is not None and bool(np.isin(trace.steps["thread"], threads).any())


def _inside(spans: Intervals, times: Ints) -> Mask:
    at = np.searchsorted(spans.start, times, "right") - 1
    hit: Mask = (at >= 0) & (times < spans.end[at]) if len(spans.start) else times < times
    return hit


def _ends(host: Table, chosen: Mask) -> Ints:
    """Starts and ends of the chosen rows."""
    ends: Ints = np.concatenate((host["start_ns"][chosen], host.end_ns[chosen]))
    return ends
