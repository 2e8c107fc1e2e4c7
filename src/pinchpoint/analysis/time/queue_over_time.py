"""How many operations wait for the device, and how long launches take to start, over time."""

from itertools import pairwise

import numpy as np

from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.queue_depth import queue
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Ints

PARTS = 120  # of the steps: as many as a picture has room for


@dataclass(frozen=True)
class QueueOverTime:
    """Medians over launches of each part of the time of all steps; None where none was issued."""

    start_ns: int
    part_ns: int
    depth: tuple[float | None, ...]  # operations issued before and not yet finished
    latency_ns: tuple[int | None, ...]  # from the call to the start on the device
    empty_ratio: float  # of launches, that found nothing queued or running


@once_per_trace
def queue_over_time(trace: Trace) -> QueueOverTime | None:
    """None where no operation is linked to its call."""
    found, windows = queue(trace), steps(trace)
    if found is None:
        return None
    begin, end = int(windows.start_ns[0]), int(windows.end_ns[-1])
    part_ns = max((end - begin) // PARTS, 1)
    part = np.clip((found.issued_ns - begin) // part_ns, 0, PARTS - 1)
    depth, latency = _medians(part, found.depth), _medians(part, found.latency_ns)
    return QueueOverTime(
        begin,
        part_ns,
        depth,
        tuple(None if ns is None else round(ns) for ns in latency),
        found.empty_ratio,
    )


def _medians(part: Ints, values: Ints) -> tuple[float | None, ...]:
    order = np.argsort(part, kind="stable")
    edges = np.searchsorted(part[order], np.arange(PARTS + 1))
    groups = (values[order[low:high]] for low, high in pairwise(edges.tolist()))
    return tuple(float(np.median(group)) if len(group) else None for group in groups)
