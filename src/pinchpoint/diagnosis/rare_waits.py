"""Batches that come late now and then, and what a short recording can tell about a loader.

The workers of a loader have batches ready when a recording begins: as many as their queue holds.
Only a recording that takes more than those shows whether they keep up.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.gap_kinds import GapKind
from pinchpoint.analysis.mean_step import ExceptionalCause, MeanStep, mean_step
from pinchpoint.analysis.steps import steps
from pinchpoint.diagnosis.host_spans import named, outermost
from pinchpoint.diagnosis.loading import LEAST_WAIT_NS, LOADER, Loads
from pinchpoint.trace import HostKind, Trace

PREFETCH_FACTOR = 2  # batches ahead for each worker, as torch has it unless told otherwise
ROUNDS_TO_TELL = 2  # of the workers, after the queue that was full is used up
SLOW_BATCH_RATIO = 2.0  # a batch that takes so much longer than others is another kind of batch


@dataclass(frozen=True, eq=False)
class RareWaits:
    """Exceptional steps that wait for their batch."""

    mean: MeanStep
    cause: ExceptionalCause
    rows: NDArray[np.intp]  # of host_ops: the waits
    slower_ratio: float | None  # a late batch against those before it, at least; None: not known


@dataclass(frozen=True)
class Queue:
    """What the recording takes from the loader's queue."""

    taken: int  # batches in the recording
    depth: int | None  # batches that may have been ready at its beginning; None: not known

    @property
    def tells(self) -> bool:
        """Whether more batches were taken than may have been ready."""
        return self.depth is not None and self.taken > self.depth


def queue_of(trace: Trace, found: Loads) -> Queue:
    """How many batches the recording takes, and how many may have been ready before it."""
    taken = len(_takes(trace))
    if not found.in_workers:
        return Queue(taken, 0)
    return Queue(taken, None if found.workers is None else found.workers * PREFETCH_FACTOR)


def rare_waits(trace: Trace, found: Loads) -> RareWaits | None:
    """The largest cause of exceptional steps that is a wait for batches beyond the queue's own."""
    mean, queue = mean_step(trace), queue_of(trace, found)
    host = trace.host_ops
    if mean is None or host is None or queue.depth is None:
        return None
    cause = next((c for c in mean.causes if c.kind == GapKind.DATA and not c.starting), None)
    takes = _takes(trace)
    late = np.flatnonzero(host["duration_ns"][takes] >= LEAST_WAIT_NS)
    late = late[late >= queue.depth]
    if cause is None or not len(late):
        return None
    ratio = _slower(trace, takes, int(late[0]), queue.depth, found.workers or 0)
    return RareWaits(mean, cause, takes[late], ratio if found.in_workers else None)


def _takes(trace: Trace) -> NDArray[np.intp]:
    """Rows of host_ops in which the thread of the steps takes a batch, in order."""
    host = trace.host_ops
    assert host is not None
    ranges = named(trace, lambda name: LOADER in name) & (host["kind"] == HostKind.ANNOTATION)
    return np.flatnonzero(outermost(trace, ranges & (host["thread"] == steps(trace).thread)))


def _slower(
    trace: Trace, takes: NDArray[np.intp], late: int, depth: int, workers: int
) -> float | None:
    """How much longer the late batch took than any that was ready before it, at least.

    Batch *k* is asked for when batch *k - depth* is taken, so one that was ready took no longer
    than from there to its own turn. The late one began once its worker had delivered the batch
    before, *k - workers*, which was there by its turn.
    """
    host = trace.host_ops
    assert host is not None
    begun, done = host["start_ns"][takes], host.end_ns[takes]
    if late <= depth or late < workers or not workers:
        return None
    ready = max(int(begun[k] - begun[k - depth]) for k in range(depth, late))
    took = int(done[late]) - max(int(begun[late - depth]), int(begun[late - workers]))
    return took / ready if ready > 0 else None
