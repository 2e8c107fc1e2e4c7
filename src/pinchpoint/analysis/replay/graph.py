"""The dependency graph that replay runs: calls in lane order, device work in stream order.

A *lane* is a set of host threads that hand work to each other and never run user work at the same
time: the thread that launches, and the autograd threads it waits for. Within a lane each call
starts a recorded time after the end of the one before it; that gap is host work.

Every device operation starts at the latest of: its launch plus the launch latency; the end of its
predecessor on the stream plus the bubble between them; the end of an operation of another stream
it was seen to wait for. A call that waits for the device ends when the operation it waits for has
ended. Each recorded time is explained by the constraint that was binding, so replaying the graph
unchanged gives back the recorded times.
"""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.launches import main_thread
from pinchpoint.trace import ApiKind, MemoryKind, Table, Trace
from pinchpoint.trace.intervals import NONE, Intervals, covered_before, flatten
from pinchpoint.trace.named import rows_named

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]

MOST_TURNS = 8  # changes between the two threads a step: forward, backward, optimizer, and again
FEWEST_IN_A_TURN = 16  # launches: micro-steps take more turns, but each of them is long
MAIN_LANE = 0  # the thread that runs the steps, and the autograd threads it waits for
NO_DEPENDENCY = -1  # local to the arrays of this graph; the tables never hold it
BLOCKED_CALL_RATIO = 8  # a launch this much longer than the median waited for a full queue
BLOCKED_CALL_LEAST_NS = 100_000  # and at least this long
USUAL_CALL_NS = 5_000  # of a launch, profiled, where the recording has none that did not wait
FULL_QUEUE_OPERATIONS = 900  # CUDA takes about 1022 launches ahead (an H100 with CUDA 13.0)
QUEUE_OPERATIONS = 1100  # so far back lies what released a launch
LONGEST_LAUNCH_LATENCY_NS = 10_000  # 3 to 8 µs on H100 and A100, recorded, with an empty stream
SLACK_NS = 2_000  # host and device clocks agree to about this much in Kineto traces
OTHER_STREAM_WAIT_NS = 5_000  # a longer bubble is looked up for a cause on another stream
BLOCKING_H2D_BYTES = 64 * 1024  # CUDA: smaller copies from pageable memory return once staged
LEAST_BATCH_WAIT_NS = 500_000  # taking a ready batch from a queue costs less, profiled
_WORKER_WAIT = re.compile(r"enumerate\(Data\w+\)#.*MultiProcessing.*__next__")
_GIVES_WORK = (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH, ApiKind.COPY, ApiKind.MEMSET)
_SYNCS = (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM, ApiKind.SYNC_EVENT, ApiKind.FREE)
_ALLOCATION = (ApiKind.MALLOC, ApiKind.HOST_ALLOC, ApiKind.MODULE_LOAD)


@dataclass(frozen=True, eq=False)
class Graph:
    """Arrays over host nodes (``calls``) and device operations (``ops``) of the replayed window.

    Times are nanoseconds of the recording. Node and operation references are positions in these
    arrays; ``NO_DEPENDENCY`` means none.
    """

    api_rows: Rows  # row of api_calls a node stands for; NO_DEPENDENCY for the end of a step
    lane: Rows
    start_ns: Ints
    gap_ns: Ints  # from the end of the node before in the lane, ``batch_wait_ns`` left out;
    # negative where calls overlap
    own_ns: Ints  # time of the call itself
    waits_for: Rows  # operation that the call waits for
    tail_ns: Ints  # from the end of that operation to the end of the call
    batch_wait_ns: Ints  # part of the gap in which the lane waited for a batch from a worker
    ready_ns: Ints  # when that batch was there, as recorded; 0 where nothing was waited for
    after_batch_ns: Ints  # the part of the gap after that
    first_op: Rows  # operations of node i: first_op[i] .. first_op[i + 1]
    op_rows: Rows  # row of device_ops
    op_stream: Rows
    op_latency_ns: Ints
    op_bubble_ns: Ints
    op_after: Rows  # operation of another stream that has to end first
    op_after_ns: Ints  # and how long after its end this one started
    op_duration_ns: Ints
    op_node: Rows
    node_step: Rows  # step that a node belongs to
    steps: int
    window_ns: int
    lane_threads: tuple[Rows, ...]
    previous_end_ns: Ints  # recorded end of the node before in the lane
    stream_free_ns: Ints  # recorded end of what each stream ran before the window


def loader_waits(trace: Trace) -> Intervals:
    """When the thread of the steps waited for a batch that worker processes prepare."""
    host = trace.host_ops
    if host is None or not len(host):
        return NONE
    rows = rows_named(trace, host, lambda name: _WORKER_WAIT.search(name) is not None)
    rows &= host["thread"] == main_thread(trace)
    rows &= host["duration_ns"] > LEAST_BATCH_WAIT_NS
    return flatten(host["start_ns"][rows], host.end_ns[rows])


def typical_launch_latency_ns(trace: Trace) -> int:
    """Time from the start of a launch call to the start of its kernel on an empty stream.

    The lower quartile of such launches; where every launch found work before it, the shortest
    time of all, unless that is longer than a launch takes: then all of them waited in the queue.
    """
    ops, calls = trace.device_ops, trace.api_calls
    if ops is None or calls is None or not len(ops):
        return 0
    known = ops.known("api_call")
    called = calls["start_ns"][ops["api_call"][known]]
    latency = ops["start_ns"][known] - called
    on_empty = (_previous_end(ops)[known] <= called) & (latency > 0)
    if on_empty.any():
        return int(np.percentile(latency[on_empty], 25))
    return min(int(max(latency.min(), 0)), LONGEST_LAUNCH_LATENCY_NS) if len(latency) else 0


def _previous_end(ops: Table) -> Ints:
    """End of the operation before each one on its device and stream (its own start if first)."""
    group = _stream_ids(ops)
    order = np.lexsort((ops["start_ns"], group))
    end = ops.end_ns[order]
    previous = np.concatenate(([0], end[:-1]))
    first = np.concatenate(([True], group[order][1:] != group[order][:-1]))
    previous[first] = ops["start_ns"][order][first]
    out = np.empty(len(ops), np.int64)
    out[order] = previous
    return out


def _ran_before(ops: Table, rows: Rows) -> Ints:
    """End of the operation before each row on its stream, whoever launched it; 0 where none was.

    What is first in the window may have waited for it and not for its launch: device work of the
    step before, or what was queued when the recording began.
    """
    order = np.lexsort((ops["start_ns"], _stream_ids(ops)))
    place = np.empty(len(ops), np.intp)
    place[order] = np.arange(len(ops))
    before = order[place[rows] - 1]
    same = (place[rows] > 0) & (_stream_ids(ops)[before] == _stream_ids(ops)[rows])
    return np.where(same, ops.end_ns[before], 0)


def _stream_ids(ops: Table) -> Rows:
    keys = ops["device"].astype(np.int64) * (1 << 40) + ops.filled("stream", 0)
    return np.unique(keys, return_inverse=True)[1].astype(np.intp)


def build(trace: Trace, step_start_ns: Ints, step_end_ns: Ints, chosen: slice) -> Graph | None:
    """The graph of the ``chosen`` steps, whose host spans are ``[step_start_ns, step_end_ns)``.

    None where the trace has no calls or no device operations inside those steps.
    """
    calls, ops = trace.api_calls, trace.device_ops
    if calls is None or ops is None or not len(calls) or not len(ops):
        return None
    starts, ends = step_start_ns[chosen], step_end_ns[chosen]
    if not len(starts):
        return None
    begin, finish = int(starts[0]), int(ends[-1])
    following = step_start_ns[chosen.stop] if chosen.stop < len(step_start_ns) else finish
    finish = max(finish, int(following))
    inside = (calls["start_ns"] >= begin) & (calls["start_ns"] < finish)
    rows = np.flatnonzero(inside)
    if not len(rows):
        return None
    lanes, lane_threads = _lanes(trace, rows, len(starts))
    nodes = _Nodes.of(calls, rows, lanes, ends)
    before = int(step_end_ns[chosen.start - 1]) if chosen.start else None
    return _Assembly(trace, nodes, starts, lane_threads, before).graph(finish - begin)


def _lanes(trace: Trace, rows: Rows, steps: int) -> tuple[Rows, tuple[Rows, ...]]:
    """Lane of each call, and the threads of each lane."""
    calls = trace.api_calls
    assert calls is not None
    threads = calls["thread"][rows].astype(np.intp)
    main = main_thread(trace)
    joined = {main}
    for other in np.unique(threads).tolist():
        if other != main and _take_turns(trace, rows, main, other, steps):
            joined.add(other)
    lane_of: dict[int, int] = dict.fromkeys(joined, 0)
    for thread in np.unique(threads).tolist():
        lane_of.setdefault(thread, len(set(lane_of.values())))
    lanes = np.array([lane_of[t] for t in threads.tolist()], np.intp)
    count = max(lane_of.values()) + 1
    members = tuple(
        np.array(sorted(t for t, at in lane_of.items() if at == lane), np.intp)
        for lane in range(count)
    )
    return lanes, members


def _take_turns(trace: Trace, rows: Rows, main: int, other: int, steps: int) -> bool:
    """Whether two threads launch in turn: backward, while its caller waits.

    Threads that launch side by side change places all the time.
    """
    calls = trace.api_calls
    assert calls is not None
    launching = np.isin(calls["kind"][rows], _GIVES_WORK)
    thread = calls["thread"][rows][launching]
    if not (thread == other).any():
        return False
    order = np.argsort(calls["start_ns"][rows][launching], kind="stable")
    pair = thread[order][np.isin(thread[order], (main, other))]
    changes = int(np.count_nonzero(np.diff(pair)))
    return changes <= max(MOST_TURNS * steps, len(pair) // FEWEST_IN_A_TURN)


@dataclass(frozen=True, eq=False)
class _Nodes:
    """Calls and step ends in order of their start."""

    api_rows: Rows
    lane: Rows
    start_ns: Ints
    end_ns: Ints
    kind: NDArray[np.uint8]

    @staticmethod
    def of(calls: Table, rows: Rows, lanes: Rows, step_ends: Ints) -> "_Nodes":
        marks = np.full(len(step_ends), NO_DEPENDENCY, np.intp)
        start = np.concatenate((calls["start_ns"][rows], step_ends))
        end = np.concatenate((calls.end_ns[rows], step_ends))
        order = np.argsort(start, kind="stable")
        return _Nodes(
            np.concatenate((rows, marks))[order],
            np.concatenate((lanes, np.full(len(step_ends), MAIN_LANE, np.intp)))[order],
            start[order],
            end[order],
            np.concatenate((calls["kind"][rows], np.zeros(len(step_ends), np.uint8)))[order],
        )


class _Assembly:
    """Builds the arrays of one graph; lives only inside :func:`build`."""

    def __init__(
        self,
        trace: Trace,
        nodes: _Nodes,
        step_starts: Ints,
        lane_threads: tuple[Rows, ...],
        step_before_end_ns: int | None,
    ) -> None:
        assert trace.api_calls is not None
        assert trace.device_ops is not None
        self.trace, self.nodes, self.lane_threads = trace, nodes, lane_threads
        self.calls, self.ops = trace.api_calls, trace.device_ops
        self.step_starts = step_starts
        self.step_before_end_ns = step_before_end_ns
        self.latency = typical_launch_latency_ns(trace)

    def graph(self, window_ns: int) -> Graph:
        nodes = self.nodes
        op_rows, op_node, first_op = self._operations()
        self.op_start = self.ops["start_ns"][op_rows].astype(np.int64)
        gap, previous_end = self._gaps()
        batch_wait, ready = self._batch_waits(previous_end)
        waits_for, tail, own = self._waits(op_rows, op_node, first_op)
        stream, latency, bubble, after, after_ns = self._device_constraints(op_rows, op_node)
        return Graph(
            api_rows=nodes.api_rows,
            lane=nodes.lane,
            start_ns=nodes.start_ns,
            gap_ns=gap - batch_wait,
            own_ns=own,
            waits_for=waits_for,
            tail_ns=tail,
            batch_wait_ns=batch_wait,
            ready_ns=ready,
            after_batch_ns=np.where(ready > 0, nodes.start_ns - ready, 0),
            first_op=first_op,
            op_rows=op_rows,
            op_stream=stream,
            op_latency_ns=latency,
            op_bubble_ns=bubble,
            op_after=after,
            op_after_ns=after_ns,
            op_duration_ns=self.ops["duration_ns"][op_rows].astype(np.int64),
            op_node=op_node,
            node_step=self._steps_of_nodes(),
            steps=len(self.step_starts),
            window_ns=window_ns,
            lane_threads=self.lane_threads,
            previous_end_ns=previous_end,
            stream_free_ns=self._streams_before(op_rows, stream),
        )

    def _streams_before(self, op_rows: Rows, stream: Rows) -> Ints:
        free = np.zeros(int(stream.max()) + 1 if len(stream) else 0, np.int64)
        first = self.ops["start_ns"][op_rows].min() if len(op_rows) else 0
        earlier = np.flatnonzero(self.ops["start_ns"] < first)
        which = _stream_ids(self.ops)[earlier]
        known = which < len(free)
        np.maximum.at(free, which[known], self.ops.end_ns[earlier][known])
        return free

    def _steps_of_nodes(self) -> Rows:
        at = np.searchsorted(self.step_starts, self.nodes.start_ns, "right") - 1
        marks = np.flatnonzero(self.nodes.api_rows == NO_DEPENDENCY)
        at[marks] = np.arange(len(marks))
        return np.maximum(at, 0).astype(np.intp)

    def _operations(self) -> tuple[Rows, Rows, Rows]:
        """Operations of the nodes, in node order then device order; node of each; offsets."""
        node_of_call = np.full(len(self.calls), NO_DEPENDENCY, np.intp)
        real = self.nodes.api_rows != NO_DEPENDENCY
        node_of_call[self.nodes.api_rows[real]] = np.flatnonzero(real)
        call = self.ops.filled("api_call", -1)
        node = np.where(call >= 0, node_of_call[np.maximum(call, 0)], NO_DEPENDENCY)
        rows = np.flatnonzero(node != NO_DEPENDENCY)
        order = np.lexsort((self.ops["start_ns"][rows], node[rows]))
        rows = rows[order]
        op_node = node[rows]
        first = np.searchsorted(op_node, np.arange(len(self.nodes.start_ns) + 1))
        return rows, op_node, first.astype(np.intp)

    def _gaps(self) -> tuple[Ints, Ints]:
        nodes = self.nodes
        gap = np.zeros(len(nodes.start_ns), np.int64)
        previous = np.zeros(len(nodes.start_ns), np.int64)
        for lane in range(len(self.lane_threads)):
            at = np.flatnonzero(nodes.lane == lane)
            if not len(at):
                continue
            reach = np.maximum.accumulate(nodes.end_ns[at])
            before = np.concatenate(([self._end_before(lane, at[0])], reach[:-1]))
            previous[at] = before
            gap[at] = nodes.start_ns[at] - before
        return gap, previous

    def _batch_waits(self, previous_end_ns: Ints) -> tuple[Ints, Ints]:
        """Time of each gap in which the lane waited for workers of a loader, and its end.

        Workers go on at their own pace when the host gets faster, so such a batch is there when
        it was there in the recording, and not earlier.
        """
        wait, ready = np.zeros((2, len(previous_end_ns)), np.int64)
        spans = loader_waits(self.trace)
        if len(spans.start):
            at = np.flatnonzero(self.nodes.lane == MAIN_LANE)
            start = np.maximum(self.nodes.start_ns[at], previous_end_ns[at])
            wait[at] = covered_before(spans, start) - covered_before(spans, previous_end_ns[at])
            last = spans.end[np.maximum(np.searchsorted(spans.start, start) - 1, 0)]
            ready[at] = np.where(wait[at] > 0, np.minimum(last, start), 0)
        return wait, ready

    def _end_before(self, lane: int, node: int) -> int:
        """End of what the lane did before the window, or the start of the first node."""
        start = int(self.nodes.start_ns[node])
        mark = self.step_before_end_ns if lane == MAIN_LANE else None
        mine = np.isin(self.calls["thread"], self.lane_threads[lane])
        mine &= self.calls["start_ns"] < start
        rows = np.flatnonzero(mine)
        ends = [int(self.calls.end_ns[rows[-1]])] if len(rows) else []
        ends += [] if mark is None else [mark]
        return min(start, max(ends, default=start))

    def _waits(self, op_rows: Rows, op_node: Rows, first_op: Rows) -> tuple[Rows, Ints, Ints]:
        """What each call waits for, the time after that, and its own time without the wait."""
        nodes = self.nodes
        took = nodes.end_ns - nodes.start_ns
        waits = np.full(len(took), NO_DEPENDENCY, np.intp)
        tail = np.zeros(len(took), np.int64)
        own = took.copy()
        op_end = self.ops.end_ns[op_rows]
        usual = self._usual_call_ns(took, op_end, first_op)
        for node in np.flatnonzero(self._may_wait(took, usual)).tolist():
            dependency = self._dependency(node, op_end, op_node, first_op)
            if dependency == NO_DEPENDENCY:
                own[node] = self._own_of_blocked(node, int(took[node]), usual, first_op)
                continue
            ended = int(op_end[dependency])
            if ended <= nodes.start_ns[node] and nodes.kind[node] != ApiKind.COPY:
                continue
            waits[node] = dependency
            tail[node] = nodes.end_ns[node] - ended
            own[node] = min(int(took[node]), usual)
        return waits, tail, own

    def _usual_call_ns(self, took: Ints, op_end: Ints, first_op: Rows) -> int:
        """The median launch that did not wait; with a full queue, nearly all of them did."""
        launches = self.nodes.kind == ApiKind.LAUNCH
        usual = int(np.median(took[launches])) if launches.any() else USUAL_CALL_NS
        if usual <= BLOCKED_CALL_LEAST_NS:
            return usual
        finished = np.searchsorted(np.sort(op_end), self.nodes.start_ns[launches], "right")
        ahead = first_op[:-1][launches] - finished
        return USUAL_CALL_NS if ahead.max() >= FULL_QUEUE_OPERATIONS else usual

    def _may_wait(self, took: Ints, usual: int) -> NDArray[np.bool_]:
        kind = self.nodes.kind
        long = took > max(BLOCKED_CALL_LEAST_NS, BLOCKED_CALL_RATIO * usual)
        sync = np.isin(kind, _SYNCS) | self._blocking_copies()
        may: NDArray[np.bool_] = sync | (long & (kind != 0) & ~np.isin(kind, _ALLOCATION))
        return may

    def _blocking_copies(self) -> NDArray[np.bool_]:
        """Copy calls that return only when their data has moved: see BLOCKING_H2D_BYTES."""
        ops = self.ops
        to, source = ops.filled("to_memory", 0), ops.filled("from_memory", 0)
        large = ops.filled("bytes", 0) > BLOCKING_H2D_BYTES
        blocking = (to == MemoryKind.PAGEABLE) | ((source == MemoryKind.PAGEABLE) & large)
        calls = ops["api_call"][blocking & ops.known("api_call")]
        waits: NDArray[np.bool_] = np.isin(self.nodes.api_rows, calls)
        waits &= self.nodes.kind == ApiKind.COPY
        return waits

    def _dependency(self, node: int, op_end: Ints, op_node: Rows, first_op: Rows) -> int:
        """The operation whose end released the call: the last to end before the call did."""
        if self.nodes.kind[node] == ApiKind.COPY:
            return self._copied_last(node, op_end, first_op)
        limit = int(self.nodes.end_ns[node]) + SLACK_NS
        ended = np.flatnonzero(op_end[: int(first_op[node + 1])] <= limit)
        return int(ended[op_end[ended].argmax()]) if len(ended) else NO_DEPENDENCY

    def _own_of_blocked(self, node: int, took: int, usual: int, first_op: Rows) -> int:
        """Time of a launch that waited for a place in a queue which work before the window filled.

        A queue holds about a thousand launches, so what made place for it may be steps ago.
        """
        if self.nodes.kind[node] not in (ApiKind.LAUNCH, ApiKind.MEMSET):
            return took
        ops = self.op_start[int(first_op[node]) : int(first_op[node + 1])]
        queued = len(ops) > 0 and int(ops[0]) > int(self.nodes.end_ns[node]) + self.latency
        return min(took, usual) if queued else took

    def _copied_last(self, node: int, op_end: Ints, first_op: Rows) -> int:
        """The copy that a copying call waits for: its own, if it began before the call ended.

        The last piece of a large copy may still be on its way when the call returns, so that the
        call can end a little before its operation does.
        """
        own = range(int(first_op[node]), int(first_op[node + 1]))
        last = max(own, key=lambda i: int(op_end[i]), default=NO_DEPENDENCY)
        if last == NO_DEPENDENCY or self.op_start[last] >= self.nodes.end_ns[node]:
            return NO_DEPENDENCY
        return last

    def _device_constraints(
        self, op_rows: Rows, op_node: Rows
    ) -> tuple[Rows, Ints, Ints, Rows, Ints]:
        """Stream, launch latency, bubble, and cross-stream dependency of each operation."""
        start = self.ops["start_ns"][op_rows].astype(np.int64)
        end = self.ops.end_ns[op_rows]
        issued = self.nodes.start_ns[op_node]
        stream = _stream_ids(self.ops)[op_rows]
        previous, has_previous = _previous_in_stream(stream, start, end)
        first = np.flatnonzero(~has_previous)
        before = _ran_before(self.ops, op_rows[first])
        known = (before > 0) & (before <= start[first])
        previous[first[known]], has_previous[first[known]] = before[known], True
        since_issue = np.maximum(start - issued, 0)
        queued = has_previous & (previous - issued > self.latency)
        latency = np.where(queued, np.minimum(since_issue, self.latency), since_issue)
        idle = start - previous
        usual = int(np.median(idle[queued])) if queued.any() else 1_000
        bubble = np.where(queued, idle, np.minimum(idle, max(usual, 0)))
        bubble = np.where(has_previous, bubble, 0)
        after, after_ns = self._other_streams(start, end, stream, queued, idle)
        bubble = np.where(after != NO_DEPENDENCY, np.minimum(bubble, usual), bubble)
        return stream, latency, bubble, after, after_ns

    def _other_streams(
        self, start: Ints, end: Ints, stream: Rows, queued: NDArray[np.bool_], idle: Ints
    ) -> tuple[Rows, Ints]:
        """For operations that were issued in time and still started late: whom they waited for."""
        after = np.full(len(start), NO_DEPENDENCY, np.intp)
        after_ns = np.zeros(len(start), np.int64)
        if len(np.unique(stream)) < 2:
            return after, after_ns
        order = np.argsort(end, kind="stable")
        position = np.searchsorted(end[order], start, "right") - 1
        for op in np.flatnonzero(queued & (idle > OTHER_STREAM_WAIT_NS)).tolist():
            at = int(position[op])
            while at >= 0 and start[op] - end[order[at]] < OTHER_STREAM_WAIT_NS:
                other = int(order[at])
                if stream[other] != stream[op] and other < op:
                    after[op], after_ns[op] = other, start[op] - end[other]
                    break
                at -= 1
        return after, after_ns


def _previous_in_stream(stream: Rows, start: Ints, end: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """End of the operation before in the stream, and whether there is one (in issue order)."""
    order = np.argsort(stream, kind="stable")
    same = np.concatenate(([False], stream[order][1:] == stream[order][:-1]))
    before = np.concatenate(([0], end[order][:-1]))
    previous, has = np.empty_like(end), np.empty(len(end), np.bool_)
    previous[order] = np.where(same, before, start[order])
    has[order] = same
    return previous, has
