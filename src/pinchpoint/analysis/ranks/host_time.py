"""What the host of a rank needs to issue a step, whatever its device makes it wait for."""

import numpy as np

from pinchpoint.analysis.ranks.calls import rank_calls
from pinchpoint.analysis.steps import Steps
from pinchpoint.analysis.synchronisation import waits
from pinchpoint.trace import ApiKind, Trace
from pinchpoint.trace.arrays import Ints
from pinchpoint.trace.intervals import covered_before, flatten

USUAL_LAUNCH_NS = 20_000  # recorded launches on H100 hosts take 5 to 12 µs


def host_ns(trace: Trace, found: Steps, issue_end: Ints) -> Ints:
    """Time of each step on the host in which it did not wait for the device; 0 without a device.

    A host that waits in a collective of its own is not told apart from one that works.
    """
    ops, calls, begin = trace.device_ops, rank_calls(trace), found.host_start_ns
    if ops is None or not len(ops) or any(":" in a.kind for a in calls.asked):
        return np.zeros(len(begin), np.int64)
    blocked = waits(trace)
    full_start, full_end = _for_room_in_the_queue(trace, found, issue_end)
    waiting = flatten(np.append(blocked.start_ns, full_start), np.append(blocked.end_ns, full_end))
    inside = covered_before(waiting, issue_end) - covered_before(waiting, begin)
    own: Ints = np.maximum(issue_end - begin - inside, 0)
    return own


def _for_room_in_the_queue(trace: Trace, found: Steps, issue_end: Ints) -> tuple[Ints, Ints]:
    """When launches waited because the queue was full: the device was a whole step behind."""
    calls = trace.api_calls
    if calls is None or not len(found):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    behind = found.end_ns - issue_end > found.end_ns - found.start_ns
    behind[0] = len(behind) > 1 and bool(behind[1])  # the window of the first one is partial
    step = np.searchsorted(found.host_start_ns, calls["start_ns"], "right") - 1
    gives = np.isin(calls["kind"], (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH, ApiKind.MEMSET))
    long = gives & (step >= 0) & behind[step] & (calls["duration_ns"] > USUAL_LAUNCH_NS)
    return calls["start_ns"][long] + USUAL_LAUNCH_NS, calls.end_ns[long]
