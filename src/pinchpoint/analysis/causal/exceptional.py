"""What each piece takes of exceptional steps beyond a usual one, for each step of the recording.

Replay stands for usual steps. Of an exceptional one the accounting knows the stretches of time that
make it long; what the host did in them is looked up by piece.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.causal.pieces import NOBODYS, Pieces
from pinchpoint.analysis.mean.exceptional_steps import ExceptionalStep, exceptional_steps
from pinchpoint.analysis.mean.mean_step import mean_without_profiler_ns, timed_steps_ns
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.gaps import host_did
from pinchpoint.analysis.time.loader_waits import loader_waits
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Floats
from pinchpoint.trace.intervals import Intervals, covered_before, flatten, intersect


def beyond_ns(trace: Trace, found: Pieces) -> Floats:
    """Nanoseconds a step by the piece's name; 0 where the mean step is the usual one.

    Also 0 where the run timed its steps itself: its mean then has them as often as they come.
    """
    total = np.zeros(len(trace.names) + len(found.labels))
    thread, ops = steps(trace).thread, trace.device_ops
    for one, spans in _exceptions(trace):
        did = host_did(trace, np.full(len(spans.start), thread, np.int64), spans.start, spans.end)
        name = found.host[did.row]
        mine = name != NOBODYS
        took = (did.end_ns - did.start_ns)[mine].astype(np.float64)
        of_one = np.bincount(name[mine], took, len(total)).astype(np.float64)  # of none: int
        if ops is not None and one.kind is None:  # device work grew
            inside = covered_before(spans, ops.end_ns) - covered_before(spans, ops["start_ns"])
            mine = (found.device != NOBODYS) & (inside > 0)
            of_one += np.bincount(found.device[mine], inside[mine], len(total))
        total += np.minimum(of_one, one.part_ns)
    return total / max(len(steps(trace).durations_ns), 1)


def batches_beyond_ns(trace: Trace) -> float:
    """The same of waiting for batches of a loader."""
    waits = loader_waits(trace)
    total = sum(
        min(intersect(waits, spans).total, one.part_ns) for one, spans in _exceptions(trace)
    )
    return total / max(len(steps(trace).durations_ns), 1)


def _exceptions(trace: Trace) -> Iterator[tuple[ExceptionalStep, Intervals]]:
    if mean_without_profiler_ns(trace) is None or len(timed_steps_ns(trace)):
        return
    for one in exceptional_steps(trace):
        if not one.starting:
            yield one, flatten(one.start_ns, one.end_ns)
