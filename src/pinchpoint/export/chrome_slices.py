"""Events of a trace as slices that nest on their tracks, as trace viewers demand."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.timeline import HostRows, host_rows
from pinchpoint.export.excerpt import Excerpt
from pinchpoint.frozen import dataclass
from pinchpoint.trace import DeviceKind, HostKind, Table, Trace

Numbers = NDArray[np.int64]

HOST, DEVICES = 1, 1000  # process numbers: the host, and the first device
OVERHEAD_TRACKS = 500_000  # threads of the profiler's own work, which nests in nothing
LANES = 1_000_000  # between the tracks of operations of one stream that overlap
MOST_LANES = 8
_CALL = 0
_CATEGORIES = {_CALL: "call"} | {1 + int(kind): kind.name.lower() for kind in HostKind}
_DEVICE_CATEGORIES = {int(kind): kind.name.lower() for kind in DeviceKind}
_ARGUMENTS = {
    "host_ops": ("shapes", "dtypes"),
    "device_ops": ("grid", "block", "bytes", "collective"),
}


@dataclass(frozen=True, eq=False)
class Slices:
    """Equally long columns, outer slices before what they hold.

    ``row`` is the position in ``table``; of calls, whose table has no arguments to show, it is
    that in ``api_calls``.
    """

    table: Table
    row: Numbers
    process: Numbers
    track: Numbers
    start_ns: Numbers
    end_ns: Numbers
    name: Numbers
    category: Numbers
    categories: dict[int, str]

    def __len__(self) -> int:
        return len(self.row)

    def arguments(self, trace: Trace, first: int, last: int) -> Iterator[dict[str, Any]]:
        """What is known of each slice besides its name, of a range of them."""
        columns = _ARGUMENTS.get(self.table.name, ())
        known = [(c, self.table.known(c), self.table[c]) for c in columns]
        named = {"shapes", "dtypes", "grid", "block", "collective"}
        for row in self.row[first:last].tolist():
            yield {
                column: trace.names[values[row]] if column in named else int(values[row])
                for column, there, values in known
                if there[row]
            }


def host_slices(trace: Trace, part: Excerpt) -> list[Slices]:
    """Operators, Python and annotations; then calls of the runtime."""
    rows = host_rows(trace)
    ends = _nesting_ends(rows, _overhead(trace.host_ops, len(rows)))
    kept = part.holds(rows.start_ns, ends)
    start, end = _clipped(rows.start_ns, part), _clipped(ends, part)
    found = []
    for table, first in ((trace.host_ops, 0), (trace.api_calls, rows.operators)):
        if table is None:
            continue
        own = np.flatnonzero(kept[first : first + len(table)])
        both = own + first
        kind = table["kind"][own].astype(np.int64)
        on_host = table.name == "host_ops"
        apart = on_host & (kind == HostKind.OVERHEAD)
        track = rows.thread[both].astype(np.int64) + np.where(apart, OVERHEAD_TRACKS, 0)
        found.append(
            Slices(
                table,
                own,
                np.full(len(own), HOST),
                track,
                start[both],
                end[both],
                table["name"][own].astype(np.int64),
                kind + 1 if on_host else np.full(len(own), _CALL),
                _CATEGORIES,
            )
        )
    return found


def _overhead(host: Table | None, rows: int) -> NDArray[np.bool_]:
    found = np.zeros(rows, np.bool_)
    if host is not None:
        found[: len(host)] = host["kind"] == HostKind.OVERHEAD
    return found


def _nesting_ends(rows: HostRows, apart: NDArray[np.bool_]) -> Numbers:
    """Ends at which no row outlasts its parent or reaches into the row beside it.

    The function that opens an annotation returns a moment after the annotation has begun: drawn,
    it ends there. Rows that are drawn ``apart`` neither cut nor are cut.
    """
    order = np.lexsort((rows.start_ns, rows.parent, rows.thread))
    order = order[~apart[order]]
    this, following = order[:-1], order[1:]
    beside = rows.parent[this] == rows.parent[following]
    beside &= rows.thread[this] == rows.thread[following]
    beside &= rows.start_ns[following] > rows.start_ns[this]
    start, end = rows.start_ns[following], rows.end_ns
    crossing = beside & (start < end[this]) & (end[this] < end[following])
    ends = end.copy()
    ends[this[crossing]] = start[crossing]
    limit = np.append(ends, np.iinfo(np.int64).max)  # NO_ROW, -1, is the last one
    while np.any(late := ends > limit[rows.parent]):
        ends[late] = limit[rows.parent][late]
        limit[:-1] = ends
    return np.maximum(ends, rows.start_ns)


def device_slices(trace: Trace, part: Excerpt) -> list[Slices]:
    """Operations by device and stream; those that overlap on their stream, on tracks beside it."""
    ops = trace.device_ops
    if ops is None or not len(ops):
        return []
    own = np.flatnonzero(part.holds(ops["start_ns"], ops.end_ns))
    process = DEVICES + ops["device"][own].astype(np.int64)
    start, end = _clipped(ops["start_ns"][own], part), _clipped(ops.end_ns[own], part)
    track = _without_overlap(process, ops.filled("stream", 0)[own].astype(np.int64), start, end)
    name, kind = ops["name"][own].astype(np.int64), ops["kind"][own].astype(np.int64)
    return [Slices(ops, own, process, track, start, end, name, kind, _DEVICE_CATEGORIES)]


def _clipped(times: Numbers, part: Excerpt) -> Numbers:
    if part.start_ns is None or part.end_ns is None:
        return times
    return np.clip(times, part.start_ns, part.end_ns)


def _without_overlap(process: Numbers, stream: Numbers, start: Numbers, end: Numbers) -> Numbers:
    """Tracks on which each slice starts after the one before it has ended.

    What still overlaps after the last track stays there: more cannot be read anyway.
    """
    track = stream % LANES
    left = np.arange(len(stream))
    for _ in range(MOST_LANES - 1):
        order = left[np.lexsort((start[left], track[left], process[left]))]
        new = np.ones(len(order), np.bool_)
        new[1:] = (np.diff(track[order]) != 0) | (np.diff(process[order]) != 0)
        late = _starts_inside(start[order], end[order], new)
        if not late.any():
            break
        left = order[late]
        track[left] += LANES
    return track


def _starts_inside(start: Numbers, end: Numbers, new: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which slices start before an earlier one of their track has ended; ``new`` begins a track."""
    if not len(start):
        return new
    group = np.cumsum(new) - 1
    shift = (int(end.max()) - int(start.min()) + 1) * group  # tracks one after the other
    reached = np.maximum.accumulate(end + shift)
    late = np.zeros(len(start), np.bool_)
    late[1:] = (start + shift)[1:] < reached[:-1]
    return late & ~new
