"""The device side of a window: order in streams, launch latency, waits between streams."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.replay.blocking import NO_DEPENDENCY
from pinchpoint.analysis.statistics import percentile
from pinchpoint.frozen import dataclass
from pinchpoint.trace import DeviceKind, Table, Trace, once_per_table
from pinchpoint.trace.arrays import Ints, Rows, distinct

LONGEST_LAUNCH_LATENCY_NS = 10_000  # 3 to 8 µs on H100 and A100, recorded, with an empty stream
LATE_IN_CALL_NS = 200_000  # no launch takes that long to reach a free stream: see above
EVENT_WAIT_NS = (
    6_000  # from the last kernel to a collective that waited for it: 5.3 to 6.3 on H100s
)
OTHER_STREAM_WAIT_NS = 5_000  # a longer bubble is looked up for a cause on another stream


@once_per_table
def stream_ids(ops: Table) -> Rows:
    """A number for each pair of device and stream, by row."""
    keys = ops["device"].astype(np.int64) * (1 << 40) + ops.filled("stream", 0)
    return np.unique(keys, return_inverse=True)[1].astype(np.intp)


@once_per_table
def device_ids(ops: Table) -> Rows:
    """A number for each device, by row."""
    return np.unique(ops["device"], return_inverse=True)[1].astype(np.intp)


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
        return int(percentile(latency[on_empty], 25))
    return min(int(max(latency.min(), 0)), LONGEST_LAUNCH_LATENCY_NS) if len(latency) else 0


@dataclass(frozen=True, eq=False)
class Constraints:
    """What held each operation back, in the order of the rows asked for."""

    stream: Rows
    latency_ns: Ints
    bubble_ns: Ints  # idle between the end of the one before in the stream and the start
    after: Rows  # operation of another stream that had to end first, or NO_DEPENDENCY
    after_ns: Ints  # and how long after its end this one started


@dataclass(frozen=True, eq=False)
class Issued:
    """The call of each operation."""

    start_ns: Ints
    end_ns: Ints
    thread: Rows


def constraints(ops: Table, op_rows: Rows, calls: Issued, launch_latency_ns: int) -> Constraints:
    """Stream, launch latency, bubble and cross-stream dependency of each operation."""
    issued_ns, returned_ns = calls.start_ns, calls.end_ns
    start = ops["start_ns"][op_rows].astype(np.int64)
    end = ops.end_ns[op_rows]
    stream = stream_ids(ops)[op_rows]
    previous, has_previous = _previous_in_stream(stream, start, end)
    first = np.flatnonzero(~has_previous)
    before = _ran_before(ops, op_rows[first])
    known = (before > 0) & (before <= start[first])
    previous[first[known]], has_previous[first[known]] = before[known], True
    since_issue = np.maximum(start - issued_ns, 0)
    queued = has_previous & (previous - issued_ns > launch_latency_ns)
    # Late on a stream that was free, as its long call returned: not asked for before.
    late = np.minimum(start - previous, returned_ns - issued_ns) > LATE_IN_CALL_NS
    queued &= ~(late & (start < returned_ns + LONGEST_LAUNCH_LATENCY_NS))
    latency = np.where(queued, np.minimum(since_issue, launch_latency_ns), since_issue)
    idle = start - previous
    usual = int(np.median(idle[queued])) if queued.any() else 1_000
    bubble = np.where(queued, idle, np.minimum(idle, max(usual, 0)))
    bubble = np.where(has_previous, bubble, 0)
    after, after_ns = _other_streams(start, end, stream, queued, idle)
    shared = ops["kind"][op_rows] == DeviceKind.COLLECTIVE
    sends, made = _made_before(start, end, stream, calls.thread, shared)
    since = start[sends] - end[made]
    at_once = since < LONGEST_LAUNCH_LATENCY_NS  # else it waited for yet another thing as well
    explained = after != NO_DEPENDENCY
    told = at_once | ~explained[sends]
    explained[sends] |= at_once
    sends, made, since = sends[told], made[told], since[told]
    after[sends], after_ns[sends] = made, np.minimum(since, EVENT_WAIT_NS)
    bubble = np.where(explained, np.minimum(bubble, usual), bubble)
    return Constraints(stream, latency, bubble, after, after_ns)


def _made_before(
    start: Ints, end: Ints, stream: Rows, thread: Rows, shared: NDArray[np.bool_]
) -> tuple[Rows, Rows]:
    """Collectives, and of each what its thread had issued last on another stream: what it sends.

    Frameworks let a collective wait for that, which the recording hides where the one before it
    took longer. A stream on which a single one began earlier waits for something else.
    """
    sends, made = [np.zeros(0, np.intp)], [np.zeros(0, np.intp)]
    for one in distinct(thread[shared]).tolist():
        mine = np.flatnonzero(shared & (thread == one))
        others = np.flatnonzero(~shared & (thread == one))
        at = np.searchsorted(others, mine) - 1
        mine, last = mine[at >= 0], others[at[at >= 0]]
        apart = stream[last] != stream[mine]
        mine, last = mine[apart], last[apart]
        early = distinct(stream[mine[end[last] > start[mine]]])
        waits = ~np.isin(stream[mine], early)
        sends.append(mine[waits])
        made.append(last[waits])
    return np.concatenate(sends), np.concatenate(made)


def _other_streams(
    start: Ints, end: Ints, stream: Rows, queued: NDArray[np.bool_], idle: Ints
) -> tuple[Rows, Ints]:
    """For operations that were issued in time and still started late: whom they waited for."""
    after = np.full(len(start), NO_DEPENDENCY, np.intp)
    after_ns = np.zeros(len(start), np.int64)
    if len(distinct(stream)) < 2:
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


def _previous_end(ops: Table) -> Ints:
    """End of the operation before each one on its device and stream (its own start if first)."""
    group = stream_ids(ops)
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
    order = np.lexsort((ops["start_ns"], stream_ids(ops)))
    place = np.empty(len(ops), np.intp)
    place[order] = np.arange(len(ops))
    before = order[place[rows] - 1]
    same = (place[rows] > 0) & (stream_ids(ops)[before] == stream_ids(ops)[rows])
    return np.where(same, ops.end_ns[before], 0)


def free_from(ops: Table, op_rows: Rows, stream: Rows) -> Ints:
    """Recorded end of what each stream ran before its first operation of the window.

    Streams do not enter the window together: one may still work on the step before.
    """
    free = np.zeros(int(stream.max()) + 1 if len(stream) else 0, np.int64)
    used, first = np.unique(stream, return_index=True)
    before = _ran_before(ops, op_rows[first])
    free[used] = np.where(before <= ops["start_ns"][op_rows[first]], before, 0)
    return free
