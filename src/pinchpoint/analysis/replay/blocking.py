"""Which calls waited for the device, for what, and how long they take without the wait."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.launches import main_thread
from pinchpoint.analysis.statistics import percentile
from pinchpoint.frozen import dataclass
from pinchpoint.trace import ApiKind, MemoryKind, Table, Trace
from pinchpoint.trace.arrays import Ints, Rows, distinct

# ------------------------------------------------------------------------------------------------
# The host side of a window: calls and step ends in order, and the lanes that they run in.
#
# A *lane* is a set of host threads that hand work to each other and never run user work at the
# same time: the thread that launches, and the autograd threads it waits for.


MOST_TURNS = 8  # changes between the two threads a step: forward, backward, optimizer, and again
FEWEST_IN_A_TURN = 16  # launches: micro-steps take more turns, but each of them is long
MAIN_LANE = 0  # the thread that runs the steps, and the autograd threads it waits for
NO_DEPENDENCY = -1  # local to the arrays of a graph; the tables never hold it
_GIVES_WORK = (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH, ApiKind.COPY, ApiKind.MEMSET)


@dataclass(frozen=True, eq=False)
class Nodes:
    """Calls and step ends in order of their start."""

    api_rows: Rows
    lane: Rows
    start_ns: Ints
    end_ns: Ints
    kind: NDArray[np.uint8]

    @staticmethod
    def of(calls: Table, rows: Rows, lanes: Rows, step_ends: Ints) -> "Nodes":
        """The calls of these rows and the ends of the steps, merged by start."""
        marks = np.full(len(step_ends), NO_DEPENDENCY, np.intp)
        start = np.concatenate((calls["start_ns"][rows], step_ends))
        end = np.concatenate((calls.end_ns[rows], step_ends))
        order = np.argsort(start, kind="stable")
        return Nodes(
            np.concatenate((rows, marks))[order],
            np.concatenate((lanes, np.full(len(step_ends), MAIN_LANE, np.intp)))[order],
            start[order],
            end[order],
            np.concatenate((calls["kind"][rows], np.zeros(len(step_ends), np.uint8)))[order],
        )


def lanes_of(trace: Trace, rows: Rows, steps: int) -> tuple[Rows, tuple[Rows, ...]]:
    """Lane of each call, and the threads of each lane."""
    calls = trace.api_calls
    assert calls is not None
    threads = calls["thread"][rows].astype(np.intp)
    main = main_thread(trace)
    joined = {main}
    for other in distinct(threads).tolist():
        if other != main and _take_turns(trace, rows, main, other, steps):
            joined.add(other)
    lane_of: dict[int, int] = dict.fromkeys(joined, 0)
    for thread in distinct(threads).tolist():
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


# ------------------------------------------------------------------------------------------------
# Which calls waited for the device, for what, and how long they take without the wait.


BLOCKED_CALL_RATIO = 8  # a launch this much longer than the median waited for a full queue
BLOCKED_CALL_LEAST_NS = 100_000  # and at least this long
USUAL_CALL_NS = 5_000  # of a launch, profiled, where the recording has none that did not wait
FULL_QUEUE_OPERATIONS = 900  # CUDA takes about 1022 launches ahead (an H100 with CUDA 13.0)
WAITED_CALL_RATIO = 2  # into a full queue; of launches into another, nine of ten are shorter
FEWEST_USUAL_CALLS = 20  # launches into a queue with room that show what a launch takes
SLACK_NS = 2_000  # host and device clocks agree to about this much in Kineto traces
BLOCKING_H2D_BYTES = 64 * 1024  # CUDA: smaller copies from pageable memory return once staged
_SYNCS = (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM, ApiKind.SYNC_EVENT, ApiKind.FREE)
_QUEUED = (ApiKind.LAUNCH, ApiKind.MEMSET)
_RETURNING = (*_QUEUED, ApiKind.EVENT_RECORD, ApiKind.STREAM_WAIT, ApiKind.QUERY)
WOKEN_NS = 200_000  # a thread that the device wakes runs within this: 0.1 ms was seen
SEVERAL_ENDED = 3  # operations: one may end by chance, the next one makes the awaited place
_ALLOCATION = (ApiKind.MALLOC, ApiKind.HOST_ALLOC, ApiKind.MODULE_LOAD)


def queued_ahead(calls: Table, ops: Table, at_ns: Ints) -> Ints:
    """Device operations that were issued before each time and had not ended by then.

    What was issued before the recording counts as well, as far as it ran in it.
    """
    call = ops.filled("api_call", NO_DEPENDENCY)
    asked = np.where(call >= 0, calls["start_ns"][np.maximum(call, 0)], -1)
    asked = np.sort(np.minimum(asked, ops["start_ns"]))
    ended = np.sort(ops.end_ns)
    ahead: Ints = np.searchsorted(asked, at_ns) - np.searchsorted(ended, at_ns, "right")
    return ahead


class Blocking:
    """The waits of the calls of one window.

    ``op_rows`` are the operations of all nodes in node order, those of node i at
    ``first_op[i] .. first_op[i + 1]``; operations are named by their position there.
    """

    def __init__(
        self,
        nodes: Nodes,
        ops: Table,
        op_rows: Rows,
        first_op: Rows,
        launch_latency_ns: int,
        ahead: Ints,
    ) -> None:
        self.nodes, self.ops, self.first_op, self.ahead = nodes, ops, first_op, ahead
        self.latency = launch_latency_ns
        self.op_start = ops["start_ns"][op_rows].astype(np.int64)
        self.op_end = ops.end_ns[op_rows]
        self.last_of_graph = self._graph_ends()
        self.by_end = np.argsort(self.op_end, kind="stable")
        self.ends = self.op_end[self.by_end]
        self.took = nodes.end_ns - nodes.start_ns
        self.usual = self._usual_call_ns()

    def waits(self) -> tuple[Rows, Ints, Ints]:
        """What each call waits for, the time after that, and its own time without the wait."""
        nodes, took = self.nodes, self.took
        waits = np.full(len(took), NO_DEPENDENCY, np.intp)
        tail = np.zeros(len(took), np.int64)
        own = took.copy()
        for node in np.flatnonzero(self._may_wait()).tolist():
            if self._only_lasts(node):
                continue
            dependency = self._dependency(node)
            if dependency == NO_DEPENDENCY:
                own[node] = self._own_of_blocked(node)
                continue
            ended = int(self.op_end[dependency])
            if ended <= nodes.start_ns[node] and nodes.kind[node] != ApiKind.COPY:
                continue
            waits[node] = dependency
            tail[node] = nodes.end_ns[node] - ended
            own[node] = min(int(took[node]), self.usual)
        return waits, tail, own

    def _only_lasts(self, node: int) -> bool:
        """Whether a call that gives the device work lasts without a wait for it.

        So it does where its thread lost its core: a place in the queue was there, or came with each
        operation that ended, and no operation of the call's own had just ended that the device had
        begun as soon as it could (as in a blocking launch).
        """
        nodes = self.nodes
        if nodes.kind[node] not in _RETURNING or self.ahead[node] >= FULL_QUEUE_OPERATIONS:
            return False
        start, end = int(nodes.start_ns[node]), int(nodes.end_ns[node])
        for own in range(int(self.first_op[node]), int(self.first_op[node + 1])):
            if end - WOKEN_NS < self.op_end[own] <= end + SLACK_NS:
                before = int(np.searchsorted(self.ends, self.op_start[own], "right")) - 1
                free = max(start, int(self.ends[before]) if before >= 0 else 0)
                return bool(self.op_start[own] > free + WOKEN_NS)
        ended = np.searchsorted(self.ends, (start, end - WOKEN_NS, end))
        return bool(ended[2] - ended[0] >= SEVERAL_ENDED or ended[2] == ended[1])

    def _graph_ends(self) -> Ints:
        """When the graph that each operation is part of had ended; 0 of others.

        Who asks does not learn that a part of a graph ended before all of it.
        """
        ends = np.zeros(len(self.op_end), np.int64)
        for node in np.flatnonzero(self.nodes.kind == ApiKind.GRAPH_LAUNCH).tolist():
            own = slice(int(self.first_op[node]), int(self.first_op[node + 1]))
            if own.stop > own.start:
                ends[own] = self.op_end[own].max()
        return ends

    def _usual_call_ns(self) -> int:
        """The median launch that found room in the queue; with a full one, most of them wait."""
        launches = self.nodes.kind == ApiKind.LAUNCH
        room = launches & (self.ahead < FULL_QUEUE_OPERATIONS)
        if room.sum() >= FEWEST_USUAL_CALLS or (room.any() and room.sum() == launches.sum()):
            return int(np.median(self.took[room]))
        quick = int(percentile(self.took[launches], 10)) if launches.any() else USUAL_CALL_NS
        return quick if quick <= BLOCKED_CALL_LEAST_NS else USUAL_CALL_NS

    def _may_wait(self) -> NDArray[np.bool_]:
        kind = self.nodes.kind
        long = self.took > max(BLOCKED_CALL_LEAST_NS, BLOCKED_CALL_RATIO * self.usual)
        full = np.isin(kind, _QUEUED) & (self.ahead >= FULL_QUEUE_OPERATIONS)
        long |= full & (self.took > WAITED_CALL_RATIO * self.usual)
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

    def _dependency(self, node: int) -> int:
        """The operation whose end released the call: the last to end before the call did.

        A launch is released by the part of a graph that made place for it.
        """
        if self.nodes.kind[node] == ApiKind.COPY:
            return self._copied_last(node)
        limit = int(self.nodes.end_ns[node]) + SLACK_NS
        at = int(np.searchsorted(self.ends, limit, "right")) - 1
        issued = int(self.first_op[node + 1])
        asks = self.nodes.kind[node] in _SYNCS
        while at >= 0 and (
            self.by_end[at] >= issued  # few: most of what ended was issued before
            or (asks and self.last_of_graph[self.by_end[at]] > limit)
        ):
            at -= 1
        return int(self.by_end[at]) if at >= 0 else NO_DEPENDENCY

    def _own_of_blocked(self, node: int) -> int:
        """Time of a launch that waited for a place in a queue which work before the window filled.

        A queue holds about a thousand launches, so what made place for it may be steps ago.
        """
        took = int(self.took[node])
        if self.nodes.kind[node] not in _QUEUED:
            return took
        ops = self.op_start[int(self.first_op[node]) : int(self.first_op[node + 1])]
        queued = len(ops) > 0 and int(ops[0]) > int(self.nodes.end_ns[node]) + self.latency
        return min(took, self.usual) if queued else took

    def _copied_last(self, node: int) -> int:
        """The copy that a copying call waits for: its own, if it began before the call ended.

        The last piece of a large copy may still be on its way when the call returns, so that the
        call can end a little before its operation does.
        """
        own = range(int(self.first_op[node]), int(self.first_op[node + 1]))
        last = max(own, key=lambda i: int(self.op_end[i]), default=NO_DEPENDENCY)
        if last == NO_DEPENDENCY or self.op_start[last] >= self.nodes.end_ns[node]:
            return NO_DEPENDENCY
        return last
