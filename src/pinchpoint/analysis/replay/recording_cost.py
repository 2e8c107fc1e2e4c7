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
from pinchpoint.trace.arrays import Ints, Mask
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


# fitted: programs recorded with and without the profiler; benchmarks/recording_cost.py
COSTS = EventCosts(operator_ns=7_000, python_ns=2_000, call_ns=6_000)
MOST_OF_A_GAP = (
    0.8  # no more than this share of the time between two calls is put down to recording
)


def cost_in_windows(
    trace: Trace,
    threads: NDArray[np.intp],
    start_ns: Ints,
    end_ns: Ints,
    costs: EventCosts = COSTS,
) -> Ints:
    """Recording cost on ``threads`` inside each window ``[start, end)``; windows do not overlap.

    Half of an event's cost falls at its start and half at its end; that of a call at its end.
    Zero for a recorder without calibration.
    """
    end_ns = np.maximum(end_ns, start_ns)
    if not calibrated(trace):
        return np.zeros(len(start_ns), np.int64)
    between = profiler_steps(trace) if _marks(trace, threads) else NONE
    whole = covered_before(between, end_ns) - covered_before(between, start_ns)
    total = np.zeros(len(start_ns))
    for times, cost in _boundaries(trace, threads, costs):
        times = times[~_inside(between, times)]
        low, high = np.searchsorted(times, start_ns, "left"), np.searchsorted(times, end_ns, "left")
        total += (high - low) * cost
    most = MOST_OF_A_GAP * (end_ns - start_ns - whole)
    result: Ints = whole + np.minimum(total, most).astype(np.int64)
    return result


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


def _boundaries(
    trace: Trace, threads: NDArray[np.intp], costs: EventCosts
) -> list[tuple[Ints, float]]:
    out: list[tuple[Ints, float]] = []
    host, calls = trace.host_ops, trace.api_calls
    if host is not None and len(host):
        mine = np.isin(host["thread"], threads)
        named = (HostKind.OPERATOR, HostKind.ANNOTATION, HostKind.COMPILE)
        python = (HostKind.PYTHON, HostKind.MODULE)
        out += _both_ends(host, mine & np.isin(host["kind"], named), costs.operator_ns / 2)
        out += _both_ends(host, mine & np.isin(host["kind"], python), costs.python_ns / 2)
    if calls is not None and len(calls):
        out.append((np.sort(calls.end_ns[np.isin(calls["thread"], threads)]), costs.call_ns))
    return out


def _both_ends(host: Table, chosen: Mask, cost: float) -> list[tuple[Ints, float]]:
    return [(np.sort(host["start_ns"][chosen]), cost), (np.sort(host.end_ns[chosen]), cost)]
