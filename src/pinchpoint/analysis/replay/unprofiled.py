"""The parts of a step as they would be without the profiler.

Recording slows the host and leaves the device's work as it is, so what recording cost comes out of
idle time (on a recording without a device: out of host time). First goes what the profiler says
of itself. Then the kinds in which the host was late with work of its own shrink by one factor,
because the cost is paid per recorded event and those kinds are where events are. Waits for data,
for other threads and for dependencies shrink only if that was not enough.
"""

from dataclasses import replace

import numpy as np

from pinchpoint.analysis.replay.predict import corrected_step_ns
from pinchpoint.analysis.replay.recording_cost import calibrated
from pinchpoint.analysis.steps.timed import timed_by_run
from pinchpoint.analysis.time.accounting import Breakdown, StepPart, breakdown
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask

_OWN_WORK = {
    kind.id.removeprefix("idle-")
    for kind in (
        GapKind.DISPATCH,
        GapKind.PYTHON,
        GapKind.GRAPH_LAUNCH,
        GapKind.COPY_CALL,
        GapKind.AUTOGRAD,
        GapKind.AFTER_SYNC,
        GapKind.UNRECORDED,
    )
}


@once_per_trace
def unprofiled_breakdown(trace: Trace) -> Breakdown | None:
    """The breakdown with ``ns_per_step`` and ``typical_ns`` as without recording cost.

    The parts keep their order, and ``by_step`` its recorded values. None where the corrected step
    is not known, is longer than the recorded one, or shorter than the device's work in it, so
    that the cost cannot have come out of idle time.
    """
    if not calibrated(trace) and not timed_by_run(trace):
        return None
    recorded, corrected = breakdown(trace), corrected_step_ns(trace)
    if corrected is None or recorded.typical_ns is None or corrected > recorded.typical_ns:
        return None
    remaining, rest = without_cost(
        recorded.parts, recorded.ns_per_step, recorded.typical_ns - corrected
    )
    return replace(recorded, ns_per_step=remaining, typical_ns=corrected) if rest == 0 else None


def without_cost(parts: tuple[StepPart, ...], ns: Ints, cost_ns: int) -> tuple[Ints, int]:
    """Times of parts with what recording cost taken out; and how much of it they could not hold."""
    remaining = ns.copy()
    for turn in (_profiler, _host_work, _any_wait):
        chosen = np.array([turn(part) for part in parts], np.bool_)
        cost_ns -= take(remaining, chosen, cost_ns)
    return remaining, cost_ns


def _profiler(part: StepPart) -> bool:
    return _kind(part) == "profiler"


def _host_work(part: StepPart) -> bool:
    known = {kind.id.removeprefix("idle-") for kind in GapKind}
    operators = part.group == "host" and _kind(part) not in known
    return operators or _kind(part) in _OWN_WORK


def _any_wait(part: StepPart) -> bool:
    return part.group in ("idle", "host")


def _kind(part: StepPart) -> str:
    return part.id.removeprefix(part.group + "-") if part.group in ("idle", "host") else ""


def take(remaining: Ints, from_parts: Mask, cost: int) -> int:
    """Take up to ``cost`` out of the chosen parts, from each in proportion; how much was taken."""
    chosen = np.flatnonzero(from_parts)
    available = int(remaining[chosen].sum())
    taken = min(cost, available)
    if not taken:
        return 0
    # Python's integers: the products of two times do not fit into 64 bits.
    shares = [int(ns) * taken // available for ns in remaining[chosen]]
    remaining[chosen] -= np.array(shares, np.int64)
    rest = taken - sum(shares)  # less than one nanosecond a part
    largest = chosen[np.argsort(-remaining[chosen], kind="stable")[:rest]]
    remaining[largest] -= 1
    return taken
