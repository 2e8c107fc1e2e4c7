"""The dependency graph that replay runs: calls in lane order, device work in stream order.

Within a lane (see ``blocking``) each call starts a recorded time after the
end of the one before it; that gap is host work.

Every device operation starts at the latest of: its launch plus the launch latency; the end of its
predecessor on the stream plus the bubble between them; the end of an operation of another stream
it was seen to wait for. A call that waits for the device ends when the operation it waits for has
ended. Each recorded time is explained by the constraint that was binding, so replaying the graph
unchanged gives back the recorded times.
"""

import numpy as np

from pinchpoint.analysis.replay.blocking import (
    MAIN_LANE,
    NO_DEPENDENCY,
    Blocking,
    Nodes,
    lanes_of,
    queued_ahead,
)
from pinchpoint.analysis.replay.streams import (
    Issued,
    constraints,
    free_from,
    typical_launch_latency_ns,
)
from pinchpoint.analysis.time.loader_waits import loader_waits
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints, Rows
from pinchpoint.trace.intervals import Intervals, covered_before, intersect, subtract, union

# ------------------------------------------------------------------------------------------------
# What changes have left of a lane's recorded host time, so that none of it is taken twice.
#
# Findings overlap: two rules may blame the same function, and their fixes together save it once.


def covered(spans: Intervals, start: Ints, end: Ints) -> Ints:
    """Time of each ``[start, end)`` inside the spans."""
    end = np.maximum(start, end)
    inside: Ints = covered_before(spans, end) - covered_before(spans, start)
    return inside


@dataclass(frozen=True, eq=False)
class HostLeft:
    """Recorded time by the share that is left of it; what is in no piece is left whole."""

    pieces: tuple[tuple[Intervals, float], ...] = ()

    def covered(self, spans: Intervals, start: Ints, end: Ints) -> Ints:
        """What is left, inside the spans, of each ``[start, end)``."""
        total = covered(spans, start, end)
        for piece, left in self.pieces:
            total -= ((1 - left) * covered(intersect(spans, piece), start, end)).astype(np.int64)
        return total

    def scaled(self, spans: Intervals, factor: float) -> "HostLeft":
        """The same after what is left in the spans was scaled."""
        found: dict[float, Intervals] = {}
        rest = spans
        for piece, left in self.pieces:
            for part, share in (
                (intersect(piece, spans), left * factor),
                (subtract(piece, spans), left),
            ):
                found[share] = union(found[share], part) if share in found else part
            rest = subtract(rest, piece)
        found[factor] = union(found[factor], rest) if factor in found else rest
        return HostLeft(tuple((piece, share) for share, piece in found.items() if len(piece.start)))


# ------------------------------------------------------------------------------------------------
# The dependency graph that replay runs: calls in lane order, device work in stream order.


LEAST_WAITING_RATIO = 0.03  # of all time; less is what taking large batches that are ready costs


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
    host_left: tuple[HostLeft, ...]  # of each lane's recorded time, after changes


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
    lanes, lane_threads = lanes_of(trace, rows, len(starts))
    nodes = Nodes.of(calls, rows, lanes, ends)
    before = int(step_end_ns[chosen.start - 1]) if chosen.start else None
    return _Assembly(trace, nodes, starts, lane_threads, before).graph(finish - begin)


class _Assembly:
    """Builds the arrays of one graph; lives only inside :func:`build`."""

    def __init__(
        self,
        trace: Trace,
        nodes: Nodes,
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

    def graph(self, window_ns: int) -> Graph:
        nodes = self.nodes
        op_rows, op_node, first_op = self._operations()
        gap, previous_end = self._gaps()
        batch_wait, ready = self._batch_waits(previous_end, window_ns)
        latency = typical_launch_latency_ns(self.trace)
        ahead = queued_ahead(self.calls, self.ops, nodes.start_ns)
        waits = Blocking(nodes, self.ops, op_rows, first_op, latency, ahead).waits()
        waits_for, tail, own = waits
        thread = self.calls["thread"][nodes.api_rows[op_node]].astype(np.intp)
        calls = Issued(nodes.start_ns[op_node], nodes.end_ns[op_node], thread)
        held = constraints(self.ops, op_rows, calls, latency)
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
            op_stream=held.stream,
            op_latency_ns=held.latency_ns,
            op_bubble_ns=held.bubble_ns,
            op_after=held.after,
            op_after_ns=held.after_ns,
            op_duration_ns=self.ops["duration_ns"][op_rows].astype(np.int64),
            op_node=op_node,
            node_step=self._steps_of_nodes(),
            steps=len(self.step_starts),
            window_ns=window_ns,
            lane_threads=self.lane_threads,
            previous_end_ns=previous_end,
            stream_free_ns=free_from(self.ops, op_rows, held.stream),
            host_left=tuple(HostLeft() for _ in self.lane_threads),
        )

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

    def _batch_waits(self, previous_end_ns: Ints, window_ns: int) -> tuple[Ints, Ints]:
        """Time of each gap in which the lane waited for workers of a loader, and its end.

        Workers that cannot keep up are never idle: they go on at their own pace when the rest gets
        faster, so such a batch is there when it was there in the recording, and not earlier. Where
        the lane hardly waits they have time to spare, and a wait is host time like any other: it
        comes when the batch is asked for.
        """
        wait, ready = np.zeros((2, len(previous_end_ns)), np.int64)
        spans = loader_waits(self.trace)
        if len(spans.start):
            at = np.flatnonzero(self.nodes.lane == MAIN_LANE)
            start = np.maximum(self.nodes.start_ns[at], previous_end_ns[at])
            waited = covered_before(spans, start) - covered_before(spans, previous_end_ns[at])
            if waited.sum() < LEAST_WAITING_RATIO * window_ns:
                return wait, ready
            wait[at] = waited
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
