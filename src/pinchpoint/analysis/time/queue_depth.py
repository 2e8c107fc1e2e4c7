"""How far the host runs ahead of the device."""

import numpy as np

from pinchpoint.analysis.host.launches import SLOWEST_START_NS, issued, own_work
from pinchpoint.analysis.statistics import percentile
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Ints

# On 40 recordings of 20 kinds of device, a quarter of the launches that find an empty queue start
# within 3 µs of the call's return on devices of NVIDIA, and within 3 to 24 µs on those of AMD.
USUAL_START_NS = 10_000  # taken where the recording does not tell
FEWEST_STARTS = 10  # launches into an empty queue that show what is usual
USUAL_PERCENTILE = 25  # low, because some of them wait for something that was not recorded
ABOVE_USUAL = 1.5  # nine of ten starts of one device are within 1.3 times that


@dataclass(frozen=True, eq=False)
class Queue:
    """What waited on the device when each linked device operation was issued.

    Arrays have one element a linked operation, in order of issue; of several operations of one
    graph launch the first stands for all, since one call queues them together.
    """

    op: Ints  # row of device_ops
    issued_ns: Ints
    latency_ns: Ints  # from the start of the call to the start on the device
    depth: Ints  # operations issued before and not yet finished
    empty_ratio: float  # share of launches that found nothing queued or running
    median_depth: float
    median_lead_ns: int  # how long after its call returned the median operation starts


@once_per_trace
def queue(trace: Trace) -> Queue | None:
    """The launches whose work began in the step windows.

    None if no operation is linked to its call, or none began there.
    """
    ops, by = trace.device_ops, issued(trace)
    windows = steps(trace)
    if ops is None or not by.linked.any() or not len(windows):
        return None
    linked = np.flatnonzero(by.linked & own_work(trace))
    order = linked[np.lexsort((ops["start_ns"][linked], by.start_ns[linked]))]
    call = by.call[order]
    first_of_call = np.append(True, call[1:] != call[:-1])
    asked = by.start_ns[order]
    finished = np.sort(ops.end_ns[order])
    depth = np.arange(len(order)) - np.searchsorted(finished, asked, "right")
    begun = ops["start_ns"][order]
    inside = (begun >= windows.start_ns[0]) & (begun < windows.end_ns[-1])
    keep = np.flatnonzero(first_of_call & inside)
    if not len(keep):
        return None
    op, asked, depth = order[keep], asked[keep], np.maximum(depth[keep], 0)
    # Clocks of host and device are aligned to a microsecond or so; a start before its call is now.
    latency = np.maximum(ops["start_ns"][op] - asked, 0)
    lead = np.maximum(ops["start_ns"][op] - by.end_ns[op], 0)
    return Queue(
        op=op,
        issued_ns=asked,
        latency_ns=latency,
        depth=depth,
        empty_ratio=float((depth == 0).mean()),
        median_depth=float(np.median(depth)),
        median_lead_ns=int(np.median(lead)),
    )


@once_per_trace
def latest_prompt_start_ns(trace: Trace) -> int:
    """How long after the return of its call an operation starts, at the latest, if nothing but the
    device's own latency is between them."""
    lined_up = queue(trace)
    if lined_up is None or trace.device_ops is None:
        return USUAL_START_NS
    empty = lined_up.op[lined_up.depth == 0]
    if len(empty) < FEWEST_STARTS:
        return USUAL_START_NS
    lead = trace.device_ops["start_ns"][empty] - issued(trace).end_ns[empty]
    usual = percentile(lead, USUAL_PERCENTILE)
    if usual > SLOWEST_START_NS:
        return USUAL_START_NS
    return max(USUAL_START_NS, round(ABOVE_USUAL * usual))
