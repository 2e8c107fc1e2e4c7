"""Edits a graph as a list of changes says."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.timeline import timelines
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
    RemoveRecordingCost,
    ScaleDeviceOps,
    ScaleHostSpans,
)
from pinchpoint.analysis.replay.graph import Graph, covered
from pinchpoint.analysis.replay.merging import merged_ratio
from pinchpoint.analysis.replay.recording_cost import (
    COSTS,
    RecordingCosts,
    calibrated,
    cost_in_windows,
)
from pinchpoint.analysis.replay.streams import LATE_IN_CALL_NS, LONGEST_LAUNCH_LATENCY_NS
from pinchpoint.analysis.statistics import percentile
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.trace import ApiKind, DeviceKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask, distinct
from pinchpoint.trace.intervals import Intervals, flatten

_GOES_WITH_LAUNCHES = (ApiKind.QUERY, ApiKind.EVENT_RECORD, ApiKind.STREAM_WAIT, ApiKind.OTHER)
_SYNCS = (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM, ApiKind.SYNC_EVENT)
FEWEST_IN_A_GRAPH = 3  # a graph launch costs about as much as two plain ones
GRAPH_LAUNCH_NS = 10_000  # host time of one graph launch; measured 8 to 12 µs on H100 hosts
PYTHON_OF_AN_OPERATOR_NS = 100_000  # module and function calls around one operator, recorded
LEAST_LAUNCH_NS = 2_000  # host time of a bare launch call: 2 to 3 µs, whatever is around it
# Between nodes of a graph, unprofiled: of the 0.42 to 0.45 µs that lie between recorded nodes, the
# graphs of four programs (H100, H200) leave 0.26 to 0.29 µs.
GRAPH_BUBBLE_NS = 280
# What the recorder adds to the launch of a graph for each of its nodes: calls that took 10 µs took
# 1.05 to 1.75 µs a node while recorded. With 1 µs, steps of two programs on H200s (238 and 455
# nodes, recorded four times) are right to 1 % in place of 4 to 11 %.
RECORDED_NODE_NS = 1_000


def apply(trace: Trace, graph: Graph, changes: Sequence[Change]) -> Graph:
    """The graph after all changes, in the order given."""
    for change in changes:
        graph = _EDITS[type(change)](trace, graph, change)
    return graph


def _node_mask(graph: Graph, api_rows: NDArray[np.intp]) -> Mask:
    hit: Mask = np.isin(graph.api_rows, api_rows) & (graph.api_rows != NO_DEPENDENCY)
    return hit


def _op_mask(graph: Graph, device_rows: NDArray[np.intp]) -> Mask:
    return np.isin(graph.op_rows, device_rows)


def _with_gaps(graph: Graph, gap_ns: Ints) -> Graph:
    """The graph with other gaps; what lies after the wait for a batch shrinks in proportion."""
    before = np.maximum(graph.gap_ns, 1)
    rest = graph.after_batch_ns * (np.maximum(gap_ns, 0) / before)
    return replace(graph, gap_ns=gap_ns, after_batch_ns=rest.astype(np.int64))


def _nodes_of(graph: Graph, ops: Mask) -> Mask:
    mask = np.zeros(len(graph.lane), np.bool_)
    mask[graph.op_node[ops]] = True
    return mask


def _drop_syncs(trace: Trace, graph: Graph, change: DropSyncs) -> Graph:
    """Nothing waits any more: calls that only waited are gone, others take what they usually do."""
    assert trace.api_calls is not None
    hit = _node_mask(graph, change.api_calls)
    only_waits = np.isin(trace.api_calls["kind"][np.maximum(graph.api_rows, 0)], _SYNCS)
    left = np.where(only_waits, 0, np.minimum(graph.own_ns, _usual_call(graph)))
    return replace(
        graph,
        waits_for=np.where(hit, NO_DEPENDENCY, graph.waits_for),
        own_ns=np.where(hit, left, graph.own_ns),
    )


def _usual_call(graph: Graph) -> int:
    launching = np.diff(graph.first_op) > 0
    return int(np.median(graph.own_ns[launching])) if launching.any() else 5_000


def _scale_host(trace: Trace, graph: Graph, change: ScaleHostSpans) -> Graph:
    host = trace.host_ops
    if host is None:  # a recording of calls alone has no spans that could be scaled
        return graph
    rows = change.host_ops
    for lane, threads in enumerate(graph.lane_threads):
        mine = rows[np.isin(host["thread"][rows], threads)]
        spans = flatten(host["start_ns"][mine], host.end_ns[mine])
        graph = _scale_lane(_batches_released(graph, lane, spans), lane, spans, change.factor)
    return graph


def _remove_host(trace: Trace, graph: Graph, change: RemoveHostTime) -> Graph:
    return _scale_lane(graph, MAIN_LANE, flatten(change.start_ns, change.end_ns), 0.0)


def _batches_released(graph: Graph, lane: int, spans: Intervals) -> Graph:
    """Waits for a batch that lie mostly in the spans are host time like any other from now on."""
    at = np.flatnonzero(graph.lane == lane)
    gap, wait, ready = graph.gap_ns.copy(), graph.batch_wait_ns.copy(), graph.ready_ns.copy()
    waiting = covered(spans, ready[at] - wait[at], ready[at])
    freed = at[waiting > wait[at] // 2]
    gap[freed] += wait[freed]
    wait[freed], ready[freed] = 0, 0
    return replace(graph, gap_ns=gap, batch_wait_ns=wait, ready_ns=ready)


def _scale_lane(graph: Graph, lane: int, spans: Intervals, factor: float) -> Graph:
    """What is left of a lane's host time in the spans takes ``factor`` of it."""
    at, left = np.flatnonzero(graph.lane == lane), graph.host_left[lane]
    gap, own = graph.gap_ns.copy(), graph.own_ns.copy()
    wait, ready = graph.batch_wait_ns[at], graph.ready_ns[at]
    inside = left.covered(spans, graph.previous_end_ns[at], graph.start_ns[at])
    inside -= covered(spans, ready - wait, ready)
    # Of a gap that earlier changes made shorter, the factor is left all the same.
    cut = (1 - factor) * np.minimum(inside, np.maximum(gap[at], 0))
    gap[at] -= cut.astype(np.int64)
    calls = left.covered(spans, graph.start_ns[at], graph.start_ns[at] + own[at])
    own[at] -= np.minimum(((1 - factor) * calls).astype(np.int64), own[at])
    kept = (*graph.host_left[:lane], left.scaled(spans, factor), *graph.host_left[lane + 1 :])
    own = _still_launching(graph, own)
    latency = _asked_earlier(graph, graph.own_ns - own)
    return replace(_with_gaps(graph, gap), own_ns=own, op_latency_ns=latency, host_left=kept)


def _asked_earlier(graph: Graph, shorter_ns: Ints) -> Ints:
    """Launch latencies where calls got shorter: a thread that stood still inside of a call may have
    asked the device only after that."""
    late = graph.op_latency_ns > LATE_IN_CALL_NS
    beyond = np.where(late, graph.op_latency_ns - LONGEST_LAUNCH_LATENCY_NS, 0)
    latency: Ints = graph.op_latency_ns - np.minimum(shorter_ns[graph.op_node], beyond)
    return latency


def _still_launching(graph: Graph, own_ns: Ints) -> Ints:
    """The calls' times, none shorter than a launch (or than it was) where it starts device work."""
    launching = np.diff(graph.first_op) > 0
    least = np.minimum(graph.own_ns, LEAST_LAUNCH_NS)
    return np.where(launching, np.maximum(own_ns, least), own_ns)


def _add_host(trace: Trace, graph: Graph, change: AddHostTime) -> Graph:
    hit = _node_mask(graph, change.api_calls)
    return replace(graph, gap_ns=np.where(hit, graph.gap_ns + change.ns, graph.gap_ns))


def _scale_device(trace: Trace, graph: Graph, change: ScaleDeviceOps) -> Graph:
    factor = np.ones(len(trace.device_ops or ()))
    factor[change.device_ops] = change.factor
    scaled = (graph.op_duration_ns * factor[graph.op_rows]).astype(np.int64)
    return replace(graph, op_duration_ns=scaled)


def _limit_device(trace: Trace, graph: Graph, change: LimitDeviceOps) -> Graph:
    limit = np.full(len(trace.device_ops or ()), np.iinfo(np.int64).max, np.int64)
    limit[change.device_ops] = change.limit_ns.astype(np.int64)
    limited = np.minimum(graph.op_duration_ns, limit[graph.op_rows])
    return replace(graph, op_duration_ns=limited)


def _drop_device(trace: Trace, graph: Graph, change: DropDeviceOps) -> Graph:
    return _without_ops(trace, graph, _op_mask(graph, change.device_ops))


def _without_ops(trace: Trace, graph: Graph, hit: Mask) -> Graph:
    """The graph without these operations, and without calls that launch nothing else.

    Of the gap before such a call, only what dispatched it goes; the program's other work stays,
    and so does an operator that goes on to launch something else.
    """
    assert trace.device_ops is not None
    all_gone = _nodes_of(graph, hit) & ~_nodes_of(graph, ~hit)
    operator = trace.device_ops.filled("host_op", NO_DEPENDENCY)[graph.op_rows]
    goes_on = np.isin(operator, operator[~hit]) & (operator != NO_DEPENDENCY)
    kept = np.minimum(graph.gap_ns, work_between_operators(trace, graph))
    kept = np.where(_nodes_of(graph, hit & goes_on), graph.gap_ns, kept)
    released = hit & ~_after_collectives(trace, graph, hit)
    return replace(
        graph,
        op_duration_ns=np.where(hit, 0, graph.op_duration_ns),
        op_bubble_ns=np.where(hit, 0, graph.op_bubble_ns),
        op_after=np.where(released, NO_DEPENDENCY, graph.op_after),
        own_ns=np.where(all_gone, 0, graph.own_ns),
        gap_ns=np.where(all_gone, kept, graph.gap_ns),
        waits_for=np.where(all_gone, NO_DEPENDENCY, graph.waits_for),
    )


def _after_collectives(trace: Trace, graph: Graph, hit: Mask) -> Mask:
    """Operations that wait for a collective which stays, on another stream: what their stream does
    behind them needs what it brings, whether they are there or not."""
    ops = trace.device_ops
    assert ops is not None
    brings = (ops["kind"][graph.op_rows] == DeviceKind.COLLECTIVE) & ~hit
    waits: Mask = graph.op_after != NO_DEPENDENCY
    waits[waits] = brings[graph.op_after[waits]]
    return waits


def _merge_device(trace: Trace, graph: Graph, change: MergeDeviceOps) -> Graph:
    ratio = merged_ratio(trace, change)
    group_of = np.full(len(trace.device_ops or ()), NO_DEPENDENCY, np.int64)
    group_of[change.device_ops] = change.group
    group = group_of[graph.op_rows]
    at = np.flatnonzero(group != NO_DEPENDENCY)
    together = np.bincount(group[at], graph.op_duration_ns[at], len(ratio)) * ratio
    first = at[np.unique(group[at], return_index=True)[1]]
    later = np.zeros(len(group), np.bool_)
    later[at], later[first] = True, False
    graph = _without_ops(trace, graph, later)
    duration = graph.op_duration_ns.copy()
    duration[first] = together[group[first]]
    return replace(graph, op_duration_ns=duration)


def _reduce_launches(trace: Trace, graph: Graph, change: ReduceLaunches) -> Graph:
    hit = _op_mask(graph, change.device_ops)
    nodes = _nodes_of(graph, hit)
    dispatch = np.maximum(graph.gap_ns - work_between_operators(trace, graph), 0)
    gap = graph.gap_ns - ((1 - change.factor) * dispatch).astype(np.int64)
    bubble = (graph.op_bubble_ns * change.factor).astype(np.int64)
    return replace(
        graph,
        own_ns=np.where(nodes, (graph.own_ns * change.factor).astype(np.int64), graph.own_ns),
        gap_ns=np.where(nodes, gap, graph.gap_ns),
        op_bubble_ns=np.where(hit, bubble, graph.op_bubble_ns),
    )


def _graph_launches(trace: Trace, graph: Graph, change: GraphLaunches) -> Graph:
    """One graph launch for each stretch of launches without a wait in it."""
    calls = trace.api_calls
    assert calls is not None
    hit = _op_mask(graph, change.device_ops)
    nodes = _nodes_of(graph, hit)
    own, gap = graph.own_ns.copy(), graph.gap_ns.copy()
    latency, waits = graph.op_latency_ns.copy(), graph.waits_for.copy()
    kept = work_between_operators(trace, graph)
    kinds = calls["kind"][np.maximum(graph.api_rows, 0)]
    goes = nodes | (np.isin(kinds, _GOES_WITH_LAUNCHES) & (graph.api_rows != NO_DEPENDENCY))
    breaks = np.cumsum(~nodes & ((graph.waits_for != NO_DEPENDENCY) | np.isin(kinds, _SYNCS)))
    selected = np.flatnonzero(nodes)
    piece = breaks[selected] * graph.steps + graph.node_step[selected]
    for one in distinct(piece).tolist():
        at = selected[piece == one]
        if len(at) < FEWEST_IN_A_GRAPH:
            continue
        swallowed = np.arange(at[0], at[-1] + 1)
        rest = swallowed[goes[swallowed] & (swallowed != at[0])]
        own[rest], waits[rest] = 0, NO_DEPENDENCY
        gap[rest] = np.minimum(gap[rest], kept[rest])
        own[at[0]] = GRAPH_LAUNCH_NS
    latency[hit] = np.minimum(latency[hit], _usual_latency(graph))
    bubble = np.where(hit, _bubble_in_a_graph(trace, graph), graph.op_bubble_ns)
    return replace(
        graph, own_ns=own, gap_ns=gap, waits_for=waits, op_latency_ns=latency, op_bubble_ns=bubble
    )


def _bubble_in_a_graph(trace: Trace, graph: Graph) -> Ints:
    """What is left of the bubble before each operation: the part in which other streams work.

    There an operation waits for them or for a free place on the device, and would in a graph too.
    """
    ops = trace.device_ops
    assert ops is not None
    start = ops["start_ns"][graph.op_rows]
    working = flatten(ops["start_ns"], ops.end_ns)
    busy = covered(working, start - graph.op_bubble_ns, start)
    left: Ints = np.minimum(graph.op_bubble_ns, np.maximum(busy, GRAPH_BUBBLE_NS))
    return left


def work_between_operators(trace: Trace, graph: Graph) -> Ints:
    """Host time of each gap that is no dispatch: outside operators, beyond a little Python.

    Operators inside a loader, a save or a log are not dispatch of the step.
    """
    gap: Ints = graph.gap_ns
    inside = np.zeros(len(gap), np.int64)
    for lane, threads in enumerate(graph.lane_threads):
        at = graph.lane == lane
        for thread in threads.tolist():
            if (spans := _dispatching(trace).get(thread)) is not None:
                left = graph.host_left[lane]
                inside[at] += left.covered(spans, graph.previous_end_ns[at], graph.start_ns[at])
    kept = np.maximum(gap - inside - PYTHON_OF_AN_OPERATOR_NS, 0)
    return np.where(graph.own_ns > 0, kept, gap)  # else its dispatch has gone with its call


@once_per_trace
def _dispatching(trace: Trace) -> dict[int, Intervals]:
    """When each thread dispatches operators."""
    code, found = activity(trace), {}
    for thread, line in timelines(trace).items():
        dispatching = code[line.row] == GapKind.DISPATCH
        end = np.append(line.at_ns[1:], line.at_ns[-1])
        found[thread] = flatten(line.at_ns[dispatching], end[dispatching])
    return found


def _usual_latency(graph: Graph) -> int:
    return int(percentile(graph.op_latency_ns, 25)) if len(graph.op_latency_ns) else 0


def _own_stream(trace: Trace, graph: Graph, change: MoveToOwnStream) -> Graph:
    hit = _op_mask(graph, change.device_ops)
    fresh = int(graph.op_stream.max()) + 1 if len(graph.op_stream) else 0
    return replace(
        graph,
        op_stream=np.where(hit, fresh, graph.op_stream),
        op_after=np.where(hit, NO_DEPENDENCY, graph.op_after),
        op_bubble_ns=np.where(hit, 0, graph.op_bubble_ns),
    )


def _remove_recording(trace: Trace, graph: Graph, change: RemoveRecordingCost) -> Graph:
    return without_recording(trace, graph, COSTS)


def without_recording(trace: Trace, graph: Graph, costs: RecordingCosts) -> Graph:
    """The graph as if the profiler had not run, if it takes these shares."""
    gap = graph.gap_ns.copy()
    for lane, threads in enumerate(graph.lane_threads):
        at = np.flatnonzero(graph.lane == lane)
        start, end = graph.previous_end_ns[at], graph.start_ns[at]
        cost = cost_in_windows(trace, threads, start, end, costs)
        gap[at] -= np.minimum(cost, np.maximum(gap[at], 0))
    graph = _graphs_unrecorded(trace, graph)
    return replace(_with_gaps(graph, gap), op_bubble_ns=_bubble_unrecorded(trace, graph))


def _graphs_unrecorded(trace: Trace, graph: Graph) -> Graph:
    """Launches of graphs as without the recorder, which sees to each node before the first runs."""
    calls = trace.api_calls
    if calls is None or not calibrated(trace):
        return graph
    kind = calls["kind"][np.maximum(graph.api_rows, 0)]
    launch = (kind == ApiKind.GRAPH_LAUNCH) & (graph.api_rows != NO_DEPENDENCY)
    most = RECORDED_NODE_NS * np.diff(graph.first_op)
    cost = np.where(launch, np.clip(graph.own_ns - GRAPH_LAUNCH_NS, 0, most), 0)
    of_op = cost[graph.op_node]
    latency = np.maximum(graph.op_latency_ns - of_op, 0)
    return replace(
        graph,
        own_ns=graph.own_ns - cost,
        op_latency_ns=np.where(of_op > 0, latency, graph.op_latency_ns),
    )


def _bubble_unrecorded(trace: Trace, graph: Graph) -> Ints:
    """Bubbles as without the recorder: it times each node of a graph and so holds up the next."""
    calls, ops = trace.api_calls, trace.device_ops
    if calls is None or ops is None or not calibrated(trace):
        return graph.op_bubble_ns
    launched_by = ops.filled("api_call", NO_DEPENDENCY)[graph.op_rows]
    kind = calls["kind"][np.maximum(launched_by, 0)]
    node = (launched_by != NO_DEPENDENCY) & (kind == ApiKind.GRAPH_LAUNCH)
    if not node.any():
        return graph.op_bubble_ns
    return np.where(node, _bubble_in_a_graph(trace, graph), graph.op_bubble_ns)


_EDITS: dict[type, Callable[..., Graph]] = {
    DropSyncs: _drop_syncs,
    ScaleHostSpans: _scale_host,
    RemoveHostTime: _remove_host,
    AddHostTime: _add_host,
    ScaleDeviceOps: _scale_device,
    LimitDeviceOps: _limit_device,
    DropDeviceOps: _drop_device,
    MergeDeviceOps: _merge_device,
    ReduceLaunches: _reduce_launches,
    GraphLaunches: _graph_launches,
    MoveToOwnStream: _own_stream,
    RemoveRecordingCost: _remove_recording,
}
