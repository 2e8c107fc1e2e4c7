"""The longest chain of a step: what the end of a step waited for, back to its beginning.

The window is replayed as it is, and of each call and device operation it is kept which constraint
it started by. From the last completion backwards that is one path without holes: device work, calls
of the host, host time between them, the start of device work, and waiting for a loader. What is not
on it can take longer or shorter without the step noticing, up to where the path changes.
"""

from collections.abc import Iterator
from enum import IntEnum

import numpy as np

from pinchpoint.analysis.replay.blocking import NO_DEPENDENCY
from pinchpoint.analysis.replay.graph import Graph
from pinchpoint.analysis.replay.replayed_window import ReplayedWindow, replayed_window
from pinchpoint.analysis.replay.simulate import PASSES, lane_clocks, settled_streams
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Codes, Floats, Ints, Rows


class Link(IntEnum):
    """What a stretch of the path is."""

    DEVICE = 0  # a device operation runs
    CALL = 1  # the host is in a call of the driver
    HOST = 2  # the host does something else, before a call
    START = 3  # from the launch, or from the operation before, to the start on the device
    BATCH = 4  # the host waits for a batch from a worker of a loader


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """Stretches in order of time, as replayed; ``at`` is an operation of the graph, or a node."""

    start_ns: Ints
    end_ns: Ints
    link: Codes
    at: Rows
    step_ends_ns: Ints  # completion of the step before the window, and of each step
    scale: float  # from replayed times to the step that predictions start from

    def by_op(self, window: ReplayedWindow) -> Floats:
        """Nanoseconds a step that each operation of the graph is on the path."""
        return self._total(window, Link.DEVICE, len(window.graph.op_rows))

    def by_node(self, window: ReplayedWindow, link: Link) -> Floats:
        """The same of the host time before each node, or of the call itself."""
        return self._total(window, link, len(window.graph.lane))

    def of_links(self, window: ReplayedWindow) -> Floats:
        """Nanoseconds a step by :class:`Link`."""
        return np.bincount(self.link, self._in_counted(window), len(Link)).astype(np.float64)

    def _total(self, window: ReplayedWindow, link: Link, count: int) -> Floats:
        mine = self.link == link
        return np.bincount(self.at[mine], self._in_counted(window)[mine], count).astype(float)

    def _in_counted(self, window: ReplayedWindow) -> Floats:
        """The part of each stretch in the steps that stand for all, divided by their number."""
        ends = self.step_ends_ns
        total = np.zeros(len(self.start_ns))
        for step in np.flatnonzero(window.counted).tolist():
            low, high = (
                np.maximum(self.start_ns, ends[step]),
                np.minimum(self.end_ns, ends[step + 1]),
            )
            total += np.maximum(high - low, 0)
        return total * self.scale / max(int(window.counted.sum()), 1)

    def one_step(self, window: ReplayedWindow) -> tuple[int, int]:
        """Begin and end of the counted step that is nearest to their mean."""
        periods = np.diff(self.step_ends_ns)
        counted = np.flatnonzero(window.counted)
        step = int(counted[np.argmin(np.abs(periods[counted] - periods[counted].mean()))])
        return int(self.step_ends_ns[step]), int(self.step_ends_ns[step + 1])


@once_per_trace
def critical_path(trace: Trace) -> CriticalPath | None:
    """The path through the replayed window; None where the trace cannot be replayed."""
    window = replayed_window(trace)
    if window is None:
        return None
    run = _Run(window.graph)
    for number in range(PASSES - 1):
        run.one_pass(number)
    found = list(run.walk())[::-1]
    columns = [np.array(column, np.int64) for column in zip(*found, strict=True)] or [
        np.zeros(0, np.int64)
    ] * 4
    start, end, link, at = columns
    return CriticalPath(
        start, end, link.astype(np.uint8), at.astype(np.intp),
        np.array([run.before, *run.completions], np.int64), window.step_ns / window.mean_ns,
    )  # fmt: skip


_NONE = -1  # no position


class _Run:
    """The replay of ``simulate``, which also keeps what everything started by."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lanes, self.streams = lane_clocks(graph), settled_streams(graph)
        self.completions = [0] * graph.steps
        self.before = 0
        self.ready = np.where(graph.ready_ns > 0, graph.ready_ns + graph.after_batch_ns, 0).tolist()
        self.bare = [
            column.tolist()
            for column in (
                graph.lane, graph.gap_ns, graph.own_ns, graph.waits_for, graph.tail_ns,
                graph.first_op, graph.node_step,
            )
        ]  # fmt: skip
        self.ops = [
            column.tolist()
            for column in (
                graph.op_stream, graph.op_latency_ns, graph.op_bubble_ns, graph.op_after,
                graph.op_after_ns, graph.op_duration_ns, graph.op_node,
            )
        ]  # fmt: skip
        self.is_mark = (graph.api_rows == NO_DEPENDENCY).tolist()

    def one_pass(self, number: int) -> None:
        """Replay the window once; what is kept is of this pass."""
        nodes, ops = len(self.is_mark), len(self.ops[0])
        self.begin, self.end, self.waited = [0] * nodes, [0] * nodes, [False] * nodes
        self.late, self.node_before = [False] * nodes, [_NONE] * nodes
        self.op_begin, self.op_end = [0] * ops, [0] * ops
        self.op_held, self.op_by = [0] * ops, [_NONE] * ops  # since when, and by which operation
        self.holder, self.last_op = [_NONE] * len(self.lanes), [_NONE] * len(self.streams)
        self.done = [0] * self.graph.steps
        self.lanes_before = list(self.lanes)
        for node in range(nodes):
            self._node(node, number * self.graph.window_ns)
        last = self.completions[-1] if number else 0
        self.before = last
        for step, done in enumerate(self.done):
            last = max(last, done)
            self.completions[step] = last

    def _node(self, node: int, shift: int) -> None:
        lane, gap, own, waits, tail, first, step = (column[node] for column in self.bare)
        begin = self.lanes[lane] + gap
        self.node_before[node] = self.holder[lane]
        if self.ready[node] and self.ready[node] + shift > begin:
            begin, self.late[node] = self.ready[node] + shift, True
        if self.is_mark[node]:
            self.done[step] = max(self.done[step], begin)
        for op in range(first, self.bare[5][node + 1]):
            self._operation(op, begin)
            self.done[step] = max(self.done[step], self.op_end[op])
        end = begin + own
        if waits >= 0 and self.op_end[waits] + tail > end:
            end, self.waited[node] = self.op_end[waits] + tail, True
        self.begin[node], self.end[node] = begin, end
        if end > self.lanes[lane]:
            self.lanes[lane], self.holder[lane] = end, node

    def _operation(self, op: int, begin: int) -> None:
        stream, latency, bubble, after, after_ns, took, _ = (column[op] for column in self.ops)
        start, by, since = begin + latency, _NONE, begin
        if self.streams[stream] + bubble > start:
            start, since = self.streams[stream] + bubble, self.streams[stream]
            by = self.last_op[stream] if self.last_op[stream] != _NONE else op
        if after >= 0 and self.op_end[after] + after_ns > start:
            start, by, since = self.op_end[after] + after_ns, after, self.op_end[after]
        self.op_begin[op], self.op_end[op] = start, start + took
        self.op_held[op], self.op_by[op] = since, by
        self.streams[stream], self.last_op[stream] = start + took, op

    def walk(self) -> Iterator[tuple[int, int, int, int]]:
        """Start, end, link and operation or node of each stretch, the last one first."""
        last = self.completions[-1] if self.completions else 0
        ended = [op for op, end in enumerate(self.op_end) if end == last]
        op = ended[-1] if ended else _NONE
        marks = [node for node, is_mark in enumerate(self.is_mark) if is_mark]
        node = _NONE if op != _NONE or not marks else marks[-1]
        reached = last
        while op != _NONE or node != _NONE:
            if op != _NONE:
                stretches, op, node = self._before_op(op)
            else:
                stretches, op, node = self._before_node(node)
            for start, end, link, at in stretches:
                if min(end, reached) > start:
                    yield start, min(end, reached), int(link), at
                    reached = start

    def _before_op(self, op: int) -> tuple[list[tuple[int, int, Link, int]], int, int]:
        begin, since, by = self.op_begin[op], self.op_held[op], self.op_by[op]
        stretches = [(begin, self.op_end[op], Link.DEVICE, op), (since, begin, Link.START, op)]
        if by == op:  # held by what the stream ran in the pass before
            return stretches, _NONE, _NONE
        if by != _NONE:
            return stretches, by, _NONE
        node = self.ops[6][op]
        before = self._gap(node)
        return [*stretches, before], _NONE, self.node_before[node]

    def _before_node(self, node: int) -> tuple[list[tuple[int, int, Link, int]], int, int]:
        if self.waited[node]:
            op = self.bare[3][node]
            return [(self.op_end[op], self.end[node], Link.CALL, node)], op, _NONE
        call = (self.begin[node], self.end[node], Link.CALL, node)
        return [call, self._gap(node)], _NONE, self.node_before[node]

    def _gap(self, node: int) -> tuple[int, int, Link, int]:
        """From the end of what the lane did before to the start of a node."""
        before = self.node_before[node]
        begin = self.begin[node]
        since = self.end[before] if before != _NONE else self.lanes_before[self.bare[0][node]]
        return since, begin, Link.BATCH if self.late[node] else Link.HOST, node
