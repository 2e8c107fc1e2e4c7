"""What each host thread was doing at any instant: its innermost recorded row.

Operators, Python frames, annotations and runtime calls of a thread nest. Flattened, they become
a sequence of pieces, each with the innermost row that is open, so that every nanosecond of a
thread has one owner or none.
"""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, KeptRows, Mask, Rows
from pinchpoint.trace.intervals import innermost, nest, nesting_order

# Ranges that end inside of the next: the optimizer's inside of a step, that step inside of its own.
MOST_CHAINED = 3
NO_ROW = -1  # the thread was in no recorded row


@dataclass(frozen=True, eq=False)
class HostRows:
    """``host_ops`` and ``api_calls`` in one numbering: a call's position is ``operators`` plus
    its row in ``api_calls``. Ends are clipped to the end of the enclosing row, because files
    round times, and the profiler's own rows belong to no thread's nesting."""

    operators: int  # how many of the rows are host_ops
    start_ns: Ints
    end_ns: Ints
    parent: Rows  # NO_ROW where nothing encloses the row
    thread: NDArray[np.int32]
    name: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, eq=False)
class HostTimeline:
    """A thread's pieces: from ``at_ns[i]`` to ``at_ns[i + 1]`` the innermost row is ``row[i]``.

    The last row is NO_ROW: after the last event nothing is open.
    """

    at_ns: Ints
    row: KeptRows

    def __len__(self) -> int:
        return len(self.at_ns)


@dataclass(frozen=True, eq=False)
class HostPieces:
    """Spans of time, each with the asking span it lies in and the row open then, or NO_ROW."""

    asked: KeptRows  # position of the asking span
    start_ns: Ints
    end_ns: Ints
    row: KeptRows


@once_per_trace
def host_rows(trace: Trace) -> HostRows:
    """All rows of host threads in one numbering."""
    host, calls = trace.host_ops, trace.api_calls
    operators = 0 if host is None else len(host)
    columns = [_columns(rows, owner) for rows, owner in ((host, "parent"), (calls, "host_op"))]
    start, end, parent, thread, name = (np.concatenate(c) for c in zip(*columns, strict=True))
    if host is not None and calls is not None:
        _put_into_calls(host, calls, parent)
    while True:  # one round for every level at which an end sticks out; nearly always one or two
        limit = np.where(parent == NO_ROW, end, np.minimum(end, end[parent]))
        if np.array_equal(limit, end):
            break
        end = limit
    end = np.maximum(end, start)
    return HostRows(operators, start, end, parent, thread, name)


def _put_into_calls(host: Table, calls: Table, parent: Ints) -> None:
    """Calls of the operating system belong to the call into the driver that makes them; what
    encloses both is the parent of that."""
    asked = np.flatnonzero(host["kind"] == HostKind.OS_CALL)
    if not len(asked):
        return
    columns = (calls["thread"], calls["start_ns"], calls.end_ns)
    order = nesting_order(*columns)
    thread, start, end = (rows[asked] for rows in (host["thread"], host["start_ns"], host.end_ns))
    inner = innermost(nest(*(column[order] for column in columns)), thread, start, end)
    made = np.flatnonzero(inner != NO_ROW)
    call, row = order[inner[made]], asked[made]
    outer = parent[row]
    begun = np.where(outer == NO_ROW, np.iinfo(np.int64).min, host["start_ns"][outer])
    nearer = calls["start_ns"][call] >= begun
    parent[row[nearer]] = len(host) + call[nearer]


def _columns(rows: Table | None, owner: str) -> tuple[NDArray[np.generic], ...]:
    if rows is None:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing, nothing.astype(np.int32), nothing.astype(np.int32)
    parent = rows.filled(owner, NO_ROW).astype(np.int64)
    return rows["start_ns"], rows.end_ns, parent, rows["thread"], rows["name"]


@once_per_trace
def timelines(trace: Trace) -> dict[int, HostTimeline]:
    """The timeline of every thread that has rows."""
    rows = host_rows(trace)
    usable = rows.end_ns > rows.start_ns
    if trace.host_ops is not None:
        usable[: rows.operators] &= trace.host_ops["kind"] != HostKind.OVERHEAD
    row = np.flatnonzero(usable)
    thread = rows.thread[row]
    by_hand = np.zeros(len(rows), np.bool_)
    if trace.host_ops is not None:
        by_hand[: rows.operators] = trace.host_ops["kind"] == HostKind.ANNOTATION
    return {
        one: _timeline(rows, row[thread == one], by_hand)
        for one in np.flatnonzero(np.bincount(thread)).tolist()
    }


def _timeline(rows: HostRows, mine: Rows, by_hand: Mask) -> HostTimeline:
    """``by_hand``: ranges that a program begins and ends where it likes, and that may cross. Of
    several changes at one instant the last counts: the innermost start, else the outermost end.
    Later rows are the inner ones."""
    found, known = _changes(rows, mine, mine), 0
    for _ in range(MOST_CHAINED):
        crossing = _crossing(rows, mine[by_hand[mine]], found)
        if len(crossing) <= known:
            break
        found, known = _changes(rows, mine, mine[~_outlived(rows, mine, crossing)]), len(crossing)
    return found


def _changes(rows: HostRows, mine: Rows, ending: Rows) -> HostTimeline:
    """``ending``: those after whose end the thread is in the row around them."""
    by_start = np.argsort(rows.start_ns[mine], kind="stable")
    by_end = np.argsort(rows.end_ns[ending], kind="stable")
    opened, closed = mine[by_start], ending[by_end]
    start, end = rows.start_ns[opened], rows.end_ns[closed]
    innermost = np.append(start[1:] != start[:-1], True)
    outermost = np.append(True, end[1:] != end[:-1])[: len(end)]
    at = np.concatenate((end[outermost], start[innermost]))
    row = np.concatenate((rows.parent[closed[outermost]], opened[innermost]))
    order = np.argsort(at, kind="stable")
    at, row = at[order], row[order]
    counts = np.append(at[1:] != at[:-1], True)  # a start after an end
    at, row = at[counts], row[counts]
    changed = np.append(True, row[1:] != row[:-1])
    return HostTimeline(at[changed], row[changed].astype(np.int32))


def _crossing(rows: HostRows, ranges: Rows, found: HostTimeline) -> Rows:
    """Ranges that begin inside of a row that they are not part of, by start: a step that begins in
    a hook of the optimizer is open when the range around that hook ends."""
    before = np.searchsorted(found.at_ns, rows.start_ns[ranges], "left") - 1
    around = np.where(before < 0, NO_ROW, found.row[before])
    # What is open and ends first is around nothing that goes on. A sibling of the same instant is.
    ends = np.where(around == NO_ROW, 0, rows.end_ns[around])
    apart = (around != rows.parent[ranges]) & (ends > rows.start_ns[ranges])
    crossing = ranges[apart & (ends < rows.end_ns[ranges])]
    ordered: Rows = crossing[np.argsort(rows.start_ns[crossing], kind="stable")]
    return ordered


def _outlived(rows: HostRows, mine: Rows, crossing: Rows) -> Mask:
    """Rows at whose end one is open that began inside of them: that one goes on."""
    starts, ends = rows.start_ns[crossing], rows.end_ns[crossing]
    first = np.searchsorted(starts, rows.start_ns[mine], "right")
    last = np.searchsorted(starts, rows.end_ns[mine], "left")
    some = np.flatnonzero(last > first)
    spans = np.stack((first[some], last[some]), axis=1).ravel()
    latest = np.maximum.reduceat(np.append(ends, 0), spans)[::2] if len(some) else ends[:0]
    found = np.zeros(len(mine), np.bool_)
    found[some] = latest > rows.end_ns[mine[some]]
    return found


def look_up(timeline: HostTimeline | None, start_ns: Ints, end_ns: Ints) -> HostPieces:
    """The pieces of a timeline inside each of the given spans, in order; they fill the spans."""
    asked = np.arange(len(start_ns), dtype=np.int32)
    if timeline is None or not len(timeline):
        return HostPieces(asked, start_ns, end_ns, np.full(len(asked), NO_ROW, np.int32))
    first = np.searchsorted(timeline.at_ns, start_ns, "right") - 1
    last = np.searchsorted(timeline.at_ns, end_ns, "left") - 1
    count = np.maximum(last - first + 1, 0)
    count[end_ns <= start_ns] = 0
    until = np.cumsum(count)
    piece = np.repeat(first - (until - count), count)
    piece += np.arange(len(piece))
    # What lies outside the timeline is the first or the last piece of its span, which begins or
    # ends where the span does.
    start, row = timeline.at_ns.take(piece, mode="clip"), timeline.row.take(piece, mode="clip")
    end = timeline.at_ns.take(piece + 1, mode="clip")
    some = np.flatnonzero(count)
    begins = (until - count)[some]
    start[begins], end[until[some] - 1] = start_ns[some], end_ns[some]
    row[begins[first[some] < 0]] = NO_ROW
    return HostPieces(np.repeat(asked, count), start, end, row)
