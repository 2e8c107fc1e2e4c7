"""Replays many variants of one graph at once: the same pass as ``replay.simulate``, over rows.

The graph's order and dependencies stay; variants differ in the host time before and in each call,
and in the time of each device operation. Every clock is a row with one element a variant, so that
a hundred variants take little longer than one.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pinchpoint.analysis.replay import simulate
from pinchpoint.analysis.replay.blocking import MAIN_LANE, NO_DEPENDENCY
from pinchpoint.analysis.replay.graph import Graph
from pinchpoint.analysis.replay.simulate import (
    OF_A_BATCH,
    OF_THE_DEVICE,
    PASSES,
    Replays,
    Times,
    lane_clocks,
    outlasts,
    stream_clocks,
)
from pinchpoint.trace.arrays import Codes, Ints, Mask

WIDTH = 192  # variants replayed together: more no longer fit into the caches


def simulate_many(graph: Graph, variants: Sequence[Times]) -> Ints:
    """Periods of the steps of the last pass, shape ``(steps, variants)``.

    Compiled, one variant after the other is faster than all of them together in numpy.
    """
    if simulate.compiled is None:
        parts = [
            together(graph, variants[at : at + WIDTH]) for at in range(0, len(variants), WIDTH)
        ]
        return np.concatenate(parts, axis=1)
    replays = Replays.of(graph)
    done = [replays.completions(0, variant, settled=True) for variant in variants]
    return np.stack([np.diff(passes[-1], prepend=passes[-2, -1]) for passes in done], axis=1)


class _Columns(NamedTuple):
    """The times of all variants, one column each; rows are nodes, or operations."""

    gap_ns: Ints
    own_ns: Ints
    duration_ns: Ints
    dropped: Mask
    free: Codes


def together(graph: Graph, variants: Sequence[Times]) -> Ints:
    """The same without compiled code."""
    rows = zip(
        *((v.gap_ns, v.own_ns, v.duration_ns, v.dropped, v.free) for v in variants), strict=True
    )
    run = _Run(graph, _Columns(*(np.stack(row, axis=1) for row in rows)))
    for number in range(PASSES):
        run.one_pass(number)
    done = np.maximum.accumulate(np.vstack((run.before[None], run.completions)), axis=0)
    return np.diff(done, axis=0)


class _Run:
    """Clocks of lanes and streams that one pass hands to the next.

    Rows of numbers are kept in lists: taking one out of an array costs as much as adding two.
    """

    def __init__(self, graph: Graph, variants: _Columns) -> None:
        self.graph, width = graph, variants.gap_ns.shape[1]
        self.lanes = [np.full(width, at, np.int64) for at in lane_clocks(graph)]
        self.streams = [np.full(width, at, np.int64) for at in stream_clocks(graph)]
        for one in range(width):
            if outlasts(graph, *(of[:, one] for of in variants[:3])):
                for stream in self.streams:
                    stream[one] = min(int(stream[one]), int(self.lanes[MAIN_LANE][one]))
        self.before = np.zeros(width, np.int64)
        self.completions = np.zeros((graph.steps, width), np.int64)
        self.nodes = list(_nodes(graph, variants))
        self.ops = list(_ops(graph, variants))

    def one_pass(self, number: int) -> None:
        """Replay the window once for all variants."""
        lanes, ops = self.lanes, self.ops
        shift = number * self.graph.window_ns
        ends: list[Ints | None] = [None] * len(ops)
        done = np.zeros_like(self.completions)
        for lane, gap, own, waits, tail, free, ready, low, high, step, mark in self.nodes:
            begin = lanes[lane] + gap
            if ready:
                late = ready + shift
                np.maximum(
                    begin, late if free is None else _unless(free & OF_A_BATCH, late), out=begin
                )
            if mark:
                np.maximum(done[step], begin, out=done[step])
            for op in range(low, high):
                ended = ends[op] = self._run_op(op, begin, ends)
                np.maximum(done[step], ended, out=done[step])
            end = begin + own
            until = ends[waits] if waits >= 0 else None
            if until is not None:
                until = until + tail
                np.maximum(
                    end, until if free is None else _unless(free & OF_THE_DEVICE, until), out=end
                )
            np.maximum(lanes[lane], end, out=lanes[lane])
        if number:
            self.before = self.completions[-1]
        self.completions = np.maximum.accumulate(np.maximum(done, self.before), axis=0)

    def _run_op(self, op: int, begin: Ints, ends: list[Ints | None]) -> Ints:
        stream, latency, bubble, after, after_ns, duration, dropped = self.ops[op]
        start: Ints = np.maximum(begin + latency, self.streams[stream] + bubble)
        held = ends[after] if after >= 0 else None
        if held is not None:
            held = held + after_ns
            np.maximum(start, held if dropped is None else np.where(dropped, 0, held), out=start)
        start += duration
        self.streams[stream] = start
        return start


def _unless(free: Codes, until: Ints | int) -> Ints:
    return np.where(free, 0, until)


def _nodes(graph: Graph, variants: _Columns) -> Iterator[tuple[Any, ...]]:
    """What a pass needs of each node; of the batch that it waits for the earliest start."""
    ready = np.where(graph.ready_ns > 0, graph.ready_ns + graph.after_batch_ns, 0)
    some = [bool(row.any()) for row in variants.free]
    return zip(
        graph.lane.tolist(),
        variants.gap_ns,
        variants.own_ns,
        graph.waits_for.tolist(),
        graph.tail_ns.tolist(),
        (row if any_ else None for row, any_ in zip(variants.free, some, strict=True)),
        ready.tolist(),
        graph.first_op.tolist(),
        graph.first_op[1:].tolist(),
        graph.node_step.tolist(),
        (graph.api_rows == NO_DEPENDENCY).tolist(),
        strict=False,
    )


def _ops(graph: Graph, variants: _Columns) -> Iterator[tuple[Any, ...]]:
    """What a pass needs of each operation; a dropped one leaves no bubble."""
    some = [bool(row.any()) for row in variants.dropped]
    bubbles = (
        np.where(row, 0, bubble) if any_ else bubble
        for row, any_, bubble in zip(
            variants.dropped, some, graph.op_bubble_ns.tolist(), strict=True
        )
    )
    return zip(
        graph.op_stream.tolist(),
        graph.op_latency_ns.tolist(),
        bubbles,
        graph.op_after.tolist(),
        graph.op_after_ns.tolist(),
        variants.duration_ns,
        (row if any_ else None for row, any_ in zip(variants.dropped, some, strict=True)),
        strict=True,
    )
