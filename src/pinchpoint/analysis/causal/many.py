"""Replays many variants of one graph at once: the same pass as ``replay.simulate``, over rows.

The graph's order and dependencies stay; variants differ in the host time before and in each call,
and in the time of each device operation. Every clock is a row with one element a variant, so that
a hundred variants take little longer than one.
"""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.replay.blocking import NO_DEPENDENCY
from pinchpoint.analysis.replay.graph import Graph
from pinchpoint.analysis.replay.simulate import PASSES
from pinchpoint.trace.arrays import Ints, Mask


@dataclass(frozen=True, eq=False)
class Variants:
    """Arrays with one column a variant; rows are nodes, or operations, of the graph."""

    gap_ns: Ints
    own_ns: Ints
    duration_ns: Ints
    dropped: Mask  # operations that are not there: they wait for nothing
    free: Mask  # nodes that do not wait


def simulate_many(graph: Graph, variants: Variants) -> Ints:
    """Periods of the steps of the last pass, shape ``(steps, variants)``."""
    run = _Run(graph, variants)
    for number in range(PASSES):
        run.one_pass(number)
    done = np.maximum.accumulate(np.vstack((run.before[None], run.completions)), axis=0)
    return np.diff(done, axis=0)


class _Run:
    """Clocks of lanes and streams that one pass hands to the next."""

    def __init__(self, graph: Graph, variants: Variants) -> None:
        self.graph, self.variants = graph, variants
        self.width = variants.gap_ns.shape[1]
        self.bubble = np.where(variants.dropped, 0, graph.op_bubble_ns[:, None])
        origin = int(graph.start_ns[0]) if len(graph.start_ns) else 0
        self.lanes = []
        for lane in range(len(graph.lane_threads)):
            at = np.flatnonzero(graph.lane == lane)
            begun = int(graph.previous_end_ns[at[0]]) if len(at) else origin
            self.lanes.append(np.full(self.width, begun, np.int64))
        streams = int(graph.op_stream.max()) + 1 if len(graph.op_stream) else 0
        self.streams = [np.zeros(self.width, np.int64) for _ in range(streams)]
        for stream, free in enumerate(graph.stream_free_ns.tolist()[:streams]):
            self.streams[stream] += free
        self.before = np.zeros(self.width, np.int64)
        self.completions = np.zeros((graph.steps, self.width), np.int64)

    def one_pass(self, number: int) -> None:
        """Replay the window once for all variants."""
        graph, of = self.graph, self.variants
        shift = number * graph.window_ns
        ends: dict[int, Ints] = {}
        done = np.zeros((graph.steps, self.width), np.int64)
        marks = graph.api_rows == NO_DEPENDENCY
        waits_for, ready = graph.waits_for.tolist(), graph.ready_ns.tolist()
        first, step = graph.first_op.tolist(), graph.node_step.tolist()
        for node, lane in enumerate(graph.lane.tolist()):
            begin = self.lanes[lane] + of.gap_ns[node]
            if ready[node]:
                begin = np.maximum(begin, ready[node] + shift + int(graph.after_batch_ns[node]))
            if marks[node]:
                np.maximum(done[step[node]], begin, out=done[step[node]])
            for op in range(first[node], first[node + 1]):
                ends[op] = self._run_op(op, begin, ends)
                np.maximum(done[step[node]], ends[op], out=done[step[node]])
            end = begin + of.own_ns[node]
            if waits_for[node] in ends:
                until = ends[waits_for[node]] + int(graph.tail_ns[node])
                end = np.maximum(end, np.where(of.free[node], 0, until))
            self.lanes[lane] = np.maximum(self.lanes[lane], end)
        if number:
            self.before = self.completions[-1]
        self.completions = np.maximum.accumulate(np.maximum(done, self.before), axis=0)

    def _run_op(self, op: int, begin: Ints, ends: dict[int, Ints]) -> Ints:
        graph, of = self.graph, self.variants
        stream, after = int(graph.op_stream[op]), int(graph.op_after[op])
        start = np.maximum(
            begin + int(graph.op_latency_ns[op]), self.streams[stream] + self.bubble[op]
        )
        if after in ends:
            held = ends[after] + int(graph.op_after_ns[op])
            start = np.maximum(start, np.where(of.dropped[op], 0, held))
        end: Ints = start + of.duration_ns[op]
        self.streams[stream] = end
        return end
