"""How far the host runs ahead of the device."""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.launches import issued, own_work
from pinchpoint.analysis.steps import steps
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Ints


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
