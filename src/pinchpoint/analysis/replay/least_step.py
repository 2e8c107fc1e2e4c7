"""The least that a step can take after a fix: nothing that the fix leaves in place is free.

Two floors, both worked out from what the changes name and not from how replay applies them:

- A graph in which every call, gap and operation has at least what the changes leave of it.
  Replayed, it is the longest chain through what remains: launch, kernel, wait, next launch, and
  batches of a loader that come when they came. A prediction is never below it.
- What no doubt about hosts and clocks can take away: the device work that remains in each stream,
  and in all of them as far as they share the device, each kernel as fast as its fastest recorded
  one, and a share of the host work that remains on the
  thread of the steps. No stated range begins below it. Where the changes leave all device work as
  it is, that is the work of the recorded step that had least of it, at a little higher clocks.

And one for what is said in the middle: a step that was timed without the profiler is shorter than
the replayed one by host time, for recording takes no part in the device's work. So the device work
that the replayed step has, and what lies between operations of a stream that are queued, is counted
as it was recorded, and not in proportion.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.launches import own_work
from pinchpoint.analysis.replay.apply import (
    GRAPH_BUBBLE_NS,
    LEAST_LAUNCH_NS,
    work_between_operators,
)
from pinchpoint.analysis.replay.blocking import MAIN_LANE, NO_DEPENDENCY
from pinchpoint.analysis.replay.changes import (
    AddHostTime,
    Change,
    DropDeviceOps,
    DropSyncs,
    GraphLaunches,
    LimitDeviceOps,
    MergeDeviceOps,
    MoveToOwnStream,
    ReduceLaunches,
    RemoveHostTime,
    ScaleDeviceOps,
    ScaleHostSpans,
)
from pinchpoint.analysis.replay.graph import Graph, covered
from pinchpoint.analysis.replay.least_durations import (
    best_ns,
    done_elsewhere,
    limits_ns,
    sustained_ns,
)
from pinchpoint.analysis.replay.merging import merged_ratio
from pinchpoint.analysis.replay.ranges import AS_IT_IS
from pinchpoint.analysis.replay.side_by_side import shared_ns
from pinchpoint.analysis.replay.streams import OTHER_STREAM_WAIT_NS, device_ids, stream_ids
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.frozen import dataclass
from pinchpoint.trace import DeviceKind, Trace, once_per_trace
from pinchpoint.trace.arrays import distinct
from pinchpoint.trace.intervals import NONE, Intervals, covered_before, flatten

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

# Of host work that no change touches, what is left in any case: after other fixes it was down to
# two fifths of what replay leaves, because what a fix takes away had disturbed the rest.
SURE_HOST_RATIO = 0.4

# Limits of operators are right within a factor of two: caches, rows that meet, a full device.
LIMIT_DOUBT_RATIO = 0.5


def floored(trace: Trace, before: Graph, after: Graph, changes: Sequence[Change]) -> Graph:
    """``after``, made from ``before`` by ``changes``, with at least what these leave of it."""
    ops = trace.device_ops
    assert ops is not None
    device = left_on_device_ns(trace, changes, ops["duration_ns"].astype(np.float64))
    gap, own = left_on_host_ns(trace, before, changes)
    least = np.floor(device[after.op_rows]).astype(np.int64)
    return replace(
        after,
        op_duration_ns=np.maximum(after.op_duration_ns, least),
        gap_ns=np.maximum(after.gap_ns, gap),
        own_ns=np.maximum(after.own_ns, own),
    )


def left_on_device_ns(trace: Trace, changes: Sequence[Change], took_ns: Floats) -> Floats:
    """The least time of each row of ``device_ops`` that the changes leave of ``took_ns``."""
    left = took_ns.copy()
    dropped = _dropped(trace, changes)
    gone = done_elsewhere(trace, dropped) if dropped.any() else dropped
    for change in changes:
        match change:
            case ScaleDeviceOps(device_ops=rows, flops_left=flops, bytes_left=size):
                computing, moving = limits_ns(trace)
                limit = np.maximum(flops * computing[rows], size * moving[rows])
                left[rows] = np.minimum(left[rows], limit)
            case LimitDeviceOps(device_ops=rows, limit_ns=needs):
                left[rows] = np.minimum(left[rows], LIMIT_DOUBT_RATIO * needs)
            case DropDeviceOps(device_ops=rows):
                left[rows] = np.where(gone[rows], 0.0, left[rows])
            case MergeDeviceOps(device_ops=rows, group=group):
                ratio = merged_ratio(trace, change)
                together = np.bincount(group, left[rows]) * ratio
                left[rows] = 0.0
                numbers, first = np.unique(group, return_index=True)
                left[rows[first]] = together[numbers]
    return left


def _dropped(trace: Trace, changes: Sequence[Change]) -> Mask:
    mask: Mask = np.zeros(len(trace.device_ops or ()), np.bool_)
    for change in changes:
        if isinstance(change, DropDeviceOps):
            mask[change.device_ops] = True
    return mask


def left_on_host_ns(trace: Trace, graph: Graph, changes: Sequence[Change]) -> tuple[Ints, Ints]:
    """The least gap before each node, and the least time of its call, that the changes leave.

    Whatever a change touches may go, but for launches of device work that remains.
    """
    gap, own = graph.gap_ns.copy(), graph.own_ns.copy()
    for lane, threads in enumerate(graph.lane_threads):
        at = np.flatnonzero(graph.lane == lane)
        spans = _touched(trace, changes, lane, threads)
        start, end = graph.start_ns[at], graph.start_ns[at] + graph.own_ns[at]
        inside = covered(spans, graph.previous_end_ns[at], start)
        gap[at] = np.where(gap[at] > 0, np.maximum(gap[at] - inside, 0), gap[at])
        own[at] = np.maximum(own[at] - covered(spans, start, end), 0)
    launching, nodes = _launches_touched(trace, graph, changes)
    if nodes.any():
        dispatch = np.maximum(graph.gap_ns - work_between_operators(trace, graph), 0)
        less = np.maximum(gap - dispatch, np.minimum(gap, 0))
        gap, own = np.where(nodes, less, gap), np.where(nodes, 0, own)
    own[_calls_touched(graph, changes)] = 0
    bare = np.minimum(graph.own_ns, LEAST_LAUNCH_NS)
    return gap, np.where(launching, np.maximum(own, bare), own)


def _touched(
    trace: Trace, changes: Sequence[Change], lane: int, threads: NDArray[np.intp]
) -> Intervals:
    """Host time of a lane that changes name."""
    host = trace.host_ops
    starts, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for change in changes:
        if isinstance(change, RemoveHostTime) and lane == MAIN_LANE:
            starts.append(change.start_ns)
            ends.append(change.end_ns)
        if isinstance(change, ScaleHostSpans) and host is not None:
            rows = change.host_ops[np.isin(host["thread"][change.host_ops], threads)]
            starts.append(host["start_ns"][rows])
            ends.append(host.end_ns[rows])
    return flatten(np.concatenate(starts), np.concatenate(ends))


def _launches_touched(trace: Trace, graph: Graph, changes: Sequence[Change]) -> tuple[Mask, Mask]:
    """Nodes that go on launching device work, and those whose dispatch changes may take."""
    gone = np.zeros(len(graph.op_rows), np.bool_)
    captured = False
    for change in changes:
        match change:
            case DropDeviceOps(device_ops=rows) | ReduceLaunches(device_ops=rows):
                gone |= np.isin(graph.op_rows, rows)
            case MergeDeviceOps(device_ops=rows):
                gone |= np.isin(graph.op_rows, rows)
            case GraphLaunches(device_ops=rows):
                gone |= np.isin(graph.op_rows, rows)
                captured = True
    fewer = np.zeros(len(graph.lane), np.bool_)
    fewer[graph.op_node[gone]] = True
    still = np.zeros(len(graph.lane), np.bool_)
    still[graph.op_node[~gone]] = True
    # A graph takes what lies between its launches too: events, queries, other calls.
    return still & ~fewer, np.ones(len(fewer), np.bool_) if captured else fewer


def _calls_touched(graph: Graph, changes: Sequence[Change]) -> Mask:
    rows = [c.api_calls for c in changes if isinstance(c, DropSyncs)]
    hit: Mask = np.isin(graph.api_rows, np.concatenate(rows) if rows else [])
    hit &= graph.api_rows != NO_DEPENDENCY
    return hit


@dataclass(frozen=True, eq=False)
class _InSteps:
    """Time of each device operation inside the steps, what its stream did before left out."""

    stream: NDArray[np.intp]
    inside_ns: Ints
    windows: Intervals
    count: int  # of steps
    work_ns: Ints  # of each step: the time in which the device works


def sure_ns(
    trace: Trace, before: Graph, counted: Mask, changes: Sequence[Change], *, every_step: bool
) -> float:
    """The least that a step can be, whatever is in doubt: device work and host work that remain, of
    the counted steps of a graph."""
    gap, own = left_on_host_ns(trace, before, changes)
    main = before.lane == MAIN_LANE  # gaps of other threads are mostly waiting for this one
    main &= counted[before.node_step]
    host = SURE_HOST_RATIO * float((gap + own)[main].sum()) / int(counted.sum())
    return max(device_ns(trace, changes, every_step=every_step), host)


# Changes after which the device does what it did, one operation after the other in each stream.
_OF_HOST = (AddHostTime, DropSyncs, GraphLaunches, ReduceLaunches, RemoveHostTime, ScaleHostSpans)


def queued_ns(trace: Trace, graph: Graph, counted: Mask) -> float:
    """What the busiest stream of a step takes at least, its operations queued one behind the other:
    the mean over the counted steps of a graph, or over all if less, for a step may launch what
    another one waits for. Of a collective, what it takes without waiting."""
    bubble = np.minimum(graph.op_bubble_ns, OTHER_STREAM_WAIT_NS)  # a longer one waits for others
    took = (graph.op_duration_ns + bubble).astype(np.float64)
    if not len(took):
        return 0.0
    shared = _between_ranks(trace)[graph.op_rows]
    took[shared] = np.minimum(graph.op_duration_ns, best_ns(trace)[graph.op_rows])[shared]
    streams, step = int(graph.op_stream.max()) + 1, graph.node_step[graph.op_node]
    by_step = np.bincount(step * streams + graph.op_stream, took, graph.steps * streams)
    by_step = by_step.reshape(graph.steps, streams)
    whole = float(by_step.sum(axis=0).max()) / graph.steps
    return min(whole, float(by_step[counted].max(axis=1).mean()))


def kept_ns(trace: Trace, changes: Sequence[Change], *, every_step: bool = False) -> float:
    """Device work of a step, in the mean, if the changes leave all of it as it is; else 0."""
    work = (_every_step if every_step else _typical_steps)(trace).work_ns
    return float(work.mean()) if len(work) and leave_the_device(changes) else 0.0


def leave_the_device(changes: Sequence[Change]) -> bool:
    """Whether the device does what it did."""
    return all(isinstance(change, _OF_HOST) for change in changes)


def device_ns(trace: Trace, changes: Sequence[Change], *, every_step: bool = False) -> float:
    """The least device work a step that the changes leave: in the stream that has most of it; of
    all streams, as far as they share the device (:mod:`side_by_side`); and all of the recorded step
    that had least, if they leave it as it is; clocks of another run may be a little higher."""
    steps_of = (_every_step if every_step else _typical_steps)(trace)
    if not len(steps_of.inside_ns) or not steps_of.count:
        return 0.0
    left = np.minimum(left_on_device_ns(trace, changes, best_ns(trace)), steps_of.inside_ns)
    stream = steps_of.stream.copy()
    for change in changes:
        if isinstance(change, MoveToOwnStream):
            stream[change.device_ops] = stream.max() + 1
    stays = left / np.maximum(steps_of.inside_ns, 1)
    shared = shared_ns(trace, stays, steps_of.windows) / steps_of.count
    busiest = max(float(np.bincount(stream, left).max()) / steps_of.count, shared)
    whole = changes and leave_the_device(changes)
    if not whole:
        return busiest
    return max(busiest, (1 - AS_IT_IS.device) * float(steps_of.work_ns.min()))


def at_power_limit_ns(
    trace: Trace, changes: Sequence[Change] = (), *, every_step: bool = False
) -> float:
    """What the products of a step take at the rate that the device keeps up, on the device with
    most of them: of what the changes leave to multiply. 0 where that rate is not known.

    Replay keeps the duration of each product, which is that of a cool device where this one rested
    for most of the recording, and rules know how fast a product is, not how long that lasts. What
    is multiplied (zeros take less power) is in no recording, so no range begins here.
    """
    steps_of = (_every_step if every_step else _typical_steps)(trace)
    ops, left_ns = trace.device_ops, sustained_ns(trace)
    if ops is None or not left_ns.any() or not steps_of.count:
        return 0.0
    left_ns = left_ns * steps_of.inside_ns / np.maximum(ops["duration_ns"], 1)
    for change in changes:
        match change:
            case ScaleDeviceOps(device_ops=rows, flops_left=flops):
                left_ns[rows] *= flops
            case DropDeviceOps(device_ops=rows) | LimitDeviceOps(device_ops=rows):
                left_ns[rows] = 0.0
    return float(np.bincount(device_ids(ops), left_ns).max()) / steps_of.count


@once_per_trace
def _typical_steps(trace: Trace) -> _InSteps:
    return _in_steps(trace, steps(trace).typical)


@once_per_trace
def _every_step(trace: Trace) -> _InSteps:
    found = steps(trace)
    return _in_steps(trace, found.complete if found.complete.any() else found.typical)


def _in_steps(trace: Trace, chosen: Mask) -> _InSteps:
    ops, found = trace.device_ops, steps(trace)
    if ops is None or not len(ops):
        nothing = np.zeros(0, np.int64)
        return _InSteps(np.zeros(0, np.intp), nothing, NONE, 0, nothing)
    stream, start, end = stream_ids(ops), ops["start_ns"].astype(np.int64), ops.end_ns
    order = np.lexsort((start, stream))
    # Shifted by stream, one running maximum serves all of them.
    apart = stream[order] * (int(end.max()) + 1)
    reach = np.maximum.accumulate(end[order] + apart)
    begun = start.copy()
    begun[order[1:]] = np.maximum(start[order[1:]], reach[:-1] - apart[1:])
    windows = flatten(found.start_ns[chosen], found.end_ns[chosen])
    end = np.maximum(end, begun)
    inside = covered_before(windows, end) - covered_before(windows, begun)
    mine = np.zeros(len(ops), np.bool_)
    mine[own_work(trace)] = True
    work = _work_ns(trace, mine, found.start_ns[chosen], found.end_ns[chosen])
    return _InSteps(stream, np.where(mine, inside, 0), windows, int(chosen.sum()), work)


def _work_ns(trace: Trace, mine: Mask, start_ns: Ints, end_ns: Ints) -> Ints:
    """Time of each step in which a device computes, on any stream, or in which a stream copies.

    What one stream runs after the other had to wait for it, or would slow it down; copies need not
    wait for kernels. Where the device is idle between two operations, the start of the second is
    part of its work, as long as a graph leaves it. Collectives also wait for other ranks.
    """
    ops = trace.device_ops
    assert ops is not None
    copies = ops["kind"] == DeviceKind.COPY
    shared = _between_ranks(trace)
    lane = np.where(copies, stream_ids(ops), -1 - ops["device"].astype(np.int64))
    most = np.zeros(len(start_ns), np.int64)
    for one in distinct(lane[mine & ~shared]).tolist():
        of = ops.take(np.flatnonzero(mine & ~shared & (lane == one)))
        busy = flatten(of["start_ns"], of.end_ns)
        before = np.concatenate((busy.start[:1], busy.end[:-1]))
        begun = np.maximum(before, busy.start - GRAPH_BUBBLE_NS)
        busy = flatten(begun, busy.end)
        most = np.maximum(most, covered_before(busy, end_ns) - covered_before(busy, start_ns))
    return most


def _between_ranks(trace: Trace) -> Mask:
    """Operations that wait for other ranks, too."""
    ops = trace.device_ops
    assert ops is not None
    found: Mask = ops["kind"] == DeviceKind.COLLECTIVE
    return found
