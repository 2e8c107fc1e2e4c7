"""Runs a graph: when would every call and every device operation start and end?

One pass over the nodes in recorded order is enough, because every constraint points to something
that was issued earlier. The window is run several times in a row, so that a host that got faster
can run ahead until the device is the limit, as it would in a long run; the last pass counts. Where
the host is the limit, what the recording had queued when it began is left out: it hides a host that
is slower than its device for as many windows as the host was ahead.
"""

from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from pinchpoint.analysis.replay.blocking import MAIN_LANE, NO_DEPENDENCY
from pinchpoint.analysis.replay.graph import Graph
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Codes, Ints, Mask

compiled: Any = None
with suppress(ImportError):  # installed without a compiler
    compiled = import_module("pinchpoint.analysis.replay._passes")

PASSES = 3  # one from the recorded state, one to settle, one that counts


@dataclass(frozen=True)
class Outcome:
    """Completion of each step of the last pass, and of the last step of the pass before."""

    completions_ns: tuple[int, ...]
    before_ns: int

    @property
    def durations_ns(self) -> tuple[int, ...]:
        """Period between completions, one a step."""
        all_of_them = (self.before_ns, *self.completions_ns)
        return tuple(b - a for a, b in pairwise(all_of_them))


def simulate(graph: Graph) -> Outcome:
    """Replay the window PASSES times and report the last."""
    *_, last = all_passes(graph, 0, settled=True)
    return last


def all_passes(graph: Graph, before_ns: int, *, settled: bool = False) -> Iterator[Outcome]:
    """Replay the window PASSES times and report each.

    The first one begins as recorded, or ``settled``: without a queue that would not last.
    ``before_ns`` is the recorded completion of the step before the window; it matters for the
    first pass, which starts from the recorded state of lanes and streams. When a pass leaves all
    clocks as it found them but for one distance, every pass after it does the same that much
    later: the next one is reported without being run, and those behind it are left out.
    """
    if compiled is not None:
        done = Replays.of(graph).completions(before_ns, settled=settled)
        befores = (before_ns, *done[:-1, -1].tolist())
        yield from (
            Outcome(tuple(row.tolist()), before) for row, before in zip(done, befores, strict=True)
        )
        return
    run = _Run(graph, before_ns, settled=settled)
    for number in range(PASSES):
        found = run.clocks()
        run.one_pass(number)
        yield Outcome(tuple(run.completions), run.before)
        moves = {left - at for at, left in zip(found, run.clocks(), strict=True)}
        if number + 1 < PASSES and len(moves) == 1 and (run.is_free or graph.window_ns in moves):
            later = moves.pop()
            yield Outcome(tuple(c + later for c in run.completions), run.completions[-1])
            return


@dataclass(frozen=True, eq=False)
class Replays:
    """A graph laid out for the compiled replay; only where :data:`compiled` is there."""

    graph: Graph
    arrays: tuple[Ints | Codes, ...]
    lanes: Ints
    streams: Ints

    @classmethod
    def of(cls, graph: Graph) -> "Replays":
        """With what no change alters worked out once."""
        ready = np.where(graph.ready_ns > 0, graph.ready_ns + graph.after_batch_ns, 0)
        numbers = (
            graph.lane, graph.waits_for, graph.tail_ns, ready, graph.first_op, graph.node_step,
            graph.api_rows == NO_DEPENDENCY, graph.op_stream, graph.op_latency_ns,
            graph.op_bubble_ns, graph.op_after, graph.op_after_ns,
        )  # fmt: skip
        laid = tuple(_bits(a) if a.dtype == np.bool_ else _whole(a) for a in numbers)
        return cls(graph, laid, _whole(lane_clocks(graph)), _whole(stream_clocks(graph)))

    def completions(
        self, before_ns: int, times: "Times | None" = None, *, settled: bool = False
    ) -> Ints:
        """Completion of each step, a row for each of PASSES passes."""
        graph = self.graph
        if times is None:
            none = np.zeros(max(len(graph.lane), len(graph.op_rows)), np.bool_)
            free = none.view(np.uint8)
            times = Times(graph.gap_ns, graph.own_ns, graph.op_duration_ns, none, free)
        laid = (
            *map(_whole, (times.gap_ns, times.own_ns, times.duration_ns)),
            _bits(times.dropped),
            np.ascontiguousarray(times.free),
        )
        streams = self.streams
        if settled and outlasts(graph, times.gap_ns, times.own_ns, times.duration_ns):
            streams = np.minimum(streams, self.lanes[MAIN_LANE])
        clocks = (self.lanes.copy(), streams.copy())
        found: Ints = compiled.run(
            self.arrays, laid, clocks, graph.steps, graph.window_ns, before_ns, PASSES
        )
        return found


@dataclass(frozen=True, eq=False)
class Times:
    """What a variant of a graph has in place of the graph's own."""

    gap_ns: Ints  # of each node
    own_ns: Ints
    duration_ns: Ints  # of each operation
    dropped: Mask  # operations that are not there: they wait for nothing
    free: Codes  # what nodes do not wait for: OF_THE_DEVICE, OF_A_BATCH, neither (0) or both


OF_THE_DEVICE, OF_A_BATCH = 1, 2  # bits


def _whole(values: Any) -> Ints:
    return np.ascontiguousarray(values, np.int64)


def _bits(values: Any) -> Codes:
    return np.ascontiguousarray(values).view(np.uint8)


def lane_clocks(graph: Graph) -> list[int]:
    """When each lane had ended what it did before the window."""
    origin = int(graph.start_ns[0]) if len(graph.start_ns) else 0
    clocks = [origin] * len(graph.lane_threads)
    for lane in range(len(clocks)):
        at = np.flatnonzero(graph.lane == lane)
        if len(at):
            clocks[lane] = int(graph.previous_end_ns[at[0]])
    return clocks


def stream_clocks(graph: Graph) -> list[int]:
    """The same of each stream."""
    streams = int(graph.op_stream.max()) + 1 if len(graph.op_stream) else 0
    clocks: list[int] = graph.stream_free_ns.tolist()
    return clocks + [0] * (streams - len(clocks))


def outlasts(graph: Graph, gap_ns: Ints, own_ns: Ints, duration_ns: Ints) -> bool:
    """Whether the busiest thread of the host takes longer for a window, without waiting, than the
    busiest stream of the device: so no queue lasts."""
    busy = np.bincount(graph.lane, weights=gap_ns + own_ns, minlength=1)
    streams = np.bincount(graph.op_stream, weights=duration_ns, minlength=1)
    return bool(busy.max() > streams.max())


def settled_streams(graph: Graph) -> list[int]:
    """When each stream is free as a window begins that is one of many."""
    streams = stream_clocks(graph)
    if not outlasts(graph, graph.gap_ns, graph.own_ns, graph.op_duration_ns):
        return streams
    return [min(at, lane_clocks(graph)[MAIN_LANE]) for at in streams]


class _Run:
    """The state that one pass hands to the next: clocks of lanes and streams."""

    def __init__(self, graph: Graph, before_ns: int, *, settled: bool = False) -> None:
        self.graph = graph
        self.lane_clock = lane_clocks(graph)
        self.stream_clock = settled_streams(graph) if settled else stream_clocks(graph)
        self.used_streams = np.unique(graph.op_stream).tolist()
        self.is_free = not graph.ready_ns.any()  # of times that are as recorded in every pass
        self.completions = [before_ns]
        self.before = before_ns
        self.nodes = list(
            zip(
                graph.lane.tolist(),
                graph.gap_ns.tolist(),
                graph.own_ns.tolist(),
                graph.waits_for.tolist(),
                graph.tail_ns.tolist(),
                graph.ready_ns.tolist(),
                graph.after_batch_ns.tolist(),
                graph.first_op.tolist(),
                graph.first_op[1:].tolist(),
                graph.node_step.tolist(),
                (graph.api_rows == NO_DEPENDENCY).tolist(),
                strict=False,
            )
        )
        self.ops = list(
            zip(
                graph.op_stream.tolist(),
                graph.op_latency_ns.tolist(),
                graph.op_bubble_ns.tolist(),
                graph.op_after.tolist(),
                graph.op_after_ns.tolist(),
                graph.op_duration_ns.tolist(),
                strict=True,
            )
        )

    def clocks(self) -> list[int]:
        """Where all lanes and streams that the window uses are."""
        return [*self.lane_clock, *(self.stream_clock[stream] for stream in self.used_streams)]

    def one_pass(self, number: int) -> None:
        """Replay the window once."""
        graph, clock, streams, ops = self.graph, self.lane_clock, self.stream_clock, self.ops
        shift = number * graph.window_ns
        op_end = [0] * len(ops)
        done = [0] * graph.steps
        for lane, gap, own, waits, tail, ready, rest, low, high, step, is_mark in self.nodes:
            begin = clock[lane] + gap
            if ready and ready + shift + rest > begin:
                begin = ready + shift + rest
            if is_mark:
                done[step] = max(done[step], begin)
            for op in range(low, high):
                stream, latency, bubble, after, after_ns, duration = ops[op]
                start = begin + latency
                earliest = streams[stream] + bubble
                if earliest > start:
                    start = earliest
                if after >= 0 and op_end[after] + after_ns > start:
                    start = op_end[after] + after_ns
                streams[stream] = op_end[op] = start + duration
                if op_end[op] > done[step]:
                    done[step] = op_end[op]
            end = begin + own
            if waits >= 0 and op_end[waits] + tail > end:
                end = op_end[waits] + tail
            if end > clock[lane]:
                clock[lane] = end
        self.before = self.completions[-1]
        # A step that the host ends before the device has ended the one before ends after that.
        self.completions = list(accumulate(done, max, initial=self.before))[1:]
