"""What bounds the typical step: the device, the host, its input, communication or copies.

Judged is the step without the profiler where that is known: recording slows only the host.
"""

from enum import Enum

from pinchpoint.analysis.device.activity import take_turns
from pinchpoint.analysis.replay.unprofiled import unprofiled_breakdown
from pinchpoint.analysis.steps.candidates import FEWEST_LAUNCHES
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.analysis.time.queue_depth import queue
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace

HELD_UP_RATIO = 0.15  # waits below this share of the step leave the device its limit
CLEAR_LEAD_RATIO = 1.5  # one wait names the step if it is this much longer than the next


class Binding(Enum):
    """What a step's time hangs on."""

    DEVICE = "device"
    HOST = "host"
    INPUT = "input"
    COMMUNICATION = "communication"
    COPIES = "copies"
    TURNS = "turns"  # several devices, one after the other
    MIXED = "mixed"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Bound:
    """What bounds the typical step, with the shares of it that say so.

    ``host`` is idle time for any reason on the host but the input; idle time that the host does
    not explain (dependencies, start latency, the profiler) is ``other``. They add up to 1.
    """

    by: Binding
    device_ratio: float
    communication_ratio: float  # exposed
    copies_ratio: float  # exposed
    input_ratio: float
    host_ratio: float
    other_ratio: float
    empty_queue_ratio: float | None  # share of launches that found an idle device, as recorded
    median_depth: float | None


_NOT_THE_HOST = (GapKind.DEPENDENCY, GapKind.START_LATENCY, GapKind.PROFILER)


@once_per_trace
def bound(trace: Trace) -> Bound:
    """Which resource bounds the typical step; HOST or INPUT for recordings without a device."""
    parts, lined_up = unprofiled_breakdown(trace) or breakdown(trace), queue(trace)
    whole = parts.typical_ns or 0
    if not whole:
        return Bound(Binding.UNKNOWN, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, None, None)
    communication = parts.of_part("exposed-communication")
    waits_for_data = parts.of_part(GapKind.DATA.id) + parts.of_part("host-data")
    unexplained = sum(parts.of_part(kind.id) for kind in _NOT_THE_HOST)
    if lined_up is None:  # nothing says that it was the host that was late
        unexplained += parts.of_part(GapKind.UNRECORDED.id)
    host = parts.of_group("idle") + parts.of_group("host") - waits_for_data - unexplained
    device, exposed = parts.of_group("device"), parts.of_group("exposed")
    by = _binding(whole, device, communication, exposed - communication, waits_for_data, host)
    if by == Binding.DEVICE and take_turns(trace):
        by = Binding.TURNS
    return Bound(
        by=Binding.UNKNOWN if too_few_operations(trace) else by,
        device_ratio=device / whole,
        communication_ratio=communication / whole,
        copies_ratio=(exposed - communication) / whole,
        input_ratio=waits_for_data / whole,
        host_ratio=host / whole,
        other_ratio=unexplained / whole,
        empty_queue_ratio=None if lined_up is None else lined_up.empty_ratio,
        median_depth=None if lined_up is None else lined_up.median_depth,
    )


def too_few_operations(trace: Trace) -> int:
    """How many device operations there are if a handful, in no step, is all there is to judge by;
    else 0."""
    count = 0 if trace.device_ops is None else len(trace.device_ops)
    return count if count < FEWEST_LAUNCHES and steps(trace).how == "none" else 0


def _binding(
    whole: int, device: int, communication: int, copies: int, data: int, host: int
) -> Binding:
    waits = {
        Binding.COMMUNICATION: communication,
        Binding.COPIES: copies,
        Binding.INPUT: data,
        Binding.HOST: host,
    }
    ranked = sorted(waits, key=lambda cause: -waits[cause])
    most, second = waits[ranked[0]], waits[ranked[1]]
    if whole - device - sum(waits.values()) > max(most, device):
        return Binding.UNKNOWN
    if most < HELD_UP_RATIO * whole:
        return Binding.DEVICE
    return ranked[0] if most > CLEAR_LEAD_RATIO * second else Binding.MIXED
