"""The host side of the trace: ranges and calls on threads, nested and linked."""

from collections.abc import Mapping

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.importers.nsys.host import Calls
from pinchpoint.importers.nsys.nvtx import NO_NAME, Ranges, StepMarkers
from pinchpoint.trace import Table, Thread, table
from pinchpoint.trace.arrays import Array, Codes, Ints, Mask, NameIds
from pinchpoint.trace.intervals import NO_ROW, Nested, innermost, nest, nesting_order

# ------------------------------------------------------------------------------------------------
# Threads and processes of one recording, and keys that tell the processes apart.


NONE = -1  # no position of a row


def pid_of(global_id: Ints) -> Ints:
    """The process id in global process or thread ids: bits 24 to 47; -1 stays."""
    return np.where(global_id < 0, NONE, (global_id >> 24) & 0xFFFFFF)


class ProcessKeys:
    """Correlation numbers are unique in a process only; this makes them unique in the trace."""

    def __init__(self, pids: Ints) -> None:
        self._pids = np.unique(pids[pids >= 0])

    def keyed(self, pid: Ints, number: Ints) -> Ints:
        """``number`` itself for the first process, shifted out of its way for the others.

        A row without a process belongs to the first one. -1 (no number) stays.
        """
        place = np.searchsorted(self._pids, pid).clip(0, max(len(self._pids) - 1, 0))
        shifted: Ints = number + (place.astype(np.int64) << 32)
        return np.where(number < 0, NONE, shifted)


class ThreadIndex:
    """From global thread ids (8 bits hardware, 8 VM, 24 process, 24 thread) to ``threads``."""

    def __init__(
        self, tids: Ints, labels: Mapping[object, str | None], ranks: Mapping[int, int]
    ) -> None:
        self._distinct = np.unique(tids)
        self._ranks = ranks
        self.threads = tuple(
            Thread(str((t >> 24) & 0xFFFFFF), str(t & 0xFFFFFF), labels.get(t))
            if t >= 0
            else Thread("unknown", "unknown")
            for t in self._distinct.tolist()
        )

    def positions(self, tids: Ints) -> Ints:
        """Position in ``threads`` of each id."""
        return np.searchsorted(self._distinct, tids)

    def pids(self, tids: Ints) -> Ints:
        """Process of each id."""
        return pid_of(tids)

    def ranks(self, tids: Ints) -> tuple[Ints, Mask]:
        """Rank of the process of each thread id, and where it is not known."""
        return self.ranks_of_pids(pid_of(tids))

    def ranks_of_pids(self, pids: Ints) -> tuple[Ints, Mask]:
        """Rank of each process, and where it is not known."""
        rank = np.full(len(pids), NONE, np.int64)
        for pid, number in self._ranks.items():
            rank[pids == pid] = number
        return rank, rank == NONE


# ------------------------------------------------------------------------------------------------
# The host side of the trace: ranges and calls on threads, nested and linked.


@dataclass(frozen=True)
class HostTable:
    """``host_ops`` and what later steps need to link to it."""

    table: Table
    nested: Nested  # the rows that can enclose others
    nested_row: Ints  # their rows in the table
    nvtx_row: Ints  # position in NVTX_EVENTS of each row, or -1


@dataclass(frozen=True)
class ApiTable:
    """``api_calls`` and the keys by which device operations find their call."""

    table: Table
    keys: Ints  # sorted
    row_of_key: Ints


@dataclass(frozen=True)
class _Rows:
    start: Ints
    end: Ints
    name: NameIds
    kind: Codes
    tid: Ints
    stacked: Mask
    sequence: Ints
    shapes: Ints
    nvtx_row: Ints


def assemble(
    ranges: Ranges | None, calls: tuple[Calls, ...], threads: ThreadIndex, origin: int
) -> HostTable | None:
    """All host rows in one table; None if the recording has no table of host activity."""
    parts = [_of_calls(c) for c in calls]
    if ranges is not None:
        parts.insert(0, _of_ranges(ranges))
    if not parts:
        return None
    merged = {f: np.concatenate([getattr(p, f) for p in parts]) for f in _Rows.__dataclass_fields__}
    order = np.lexsort((-merged["end"], merged["start"]))
    rows = _Rows(**{f: column[order] for f, column in merged.items()})
    start, end = rows.start - origin, rows.end - origin
    thread = threads.positions(rows.tid)
    nested, nested_row, parent = _parents(thread, start, end, rows.stacked)
    rank, no_rank = threads.ranks(rows.tid)
    made = table(
        "host_ops",
        {
            "start_ns": start,
            "duration_ns": end - start,
            "name": rows.name,
            "kind": rows.kind,
            "thread": thread,
            "rank": rank,
            "parent": parent,
            "sequence": rows.sequence,
            "shapes": rows.shapes,
        },
        {
            "rank": no_rank,
            "parent": parent == NO_ROW,
            "sequence": rows.sequence == NO_NAME,
            "shapes": rows.shapes == NO_NAME,
        },
    )
    return HostTable(made, nested, nested_row, rows.nvtx_row)


def _of_ranges(ranges: Ranges) -> _Rows:
    return _Rows(
        ranges.start,
        ranges.end,
        ranges.name,
        ranges.kind,
        ranges.tid,
        ranges.stacked,
        ranges.sequence,
        ranges.shapes.astype(np.int64),
        ranges.row,
    )


def _of_calls(calls: Calls) -> _Rows:
    none = np.full(len(calls), NO_NAME, np.int64)
    stacked = np.zeros(len(calls), np.bool_)
    return _Rows(
        calls.start, calls.end, calls.name, calls.kind, calls.tid, stacked, none, none, none
    )


def _parents(thread: Ints, start: Ints, end: Ints, stacked: Mask) -> tuple[Nested, Ints, Ints]:
    """Push/pop ranges enclose; everything on the thread may be enclosed."""
    parent = np.full(len(start), NO_ROW, np.int64)
    rows = np.flatnonzero(stacked)
    rows = rows[nesting_order(thread[rows], start[rows], end[rows])]
    nested = nest(thread[rows], start[rows], end[rows])
    parent[rows] = _rows_of(rows, nested.parent)
    rest = np.flatnonzero(~stacked)
    parent[rest] = _rows_of(rows, innermost(nested, thread[rest], start[rest], end[rest]))
    return nested, rows, parent


def _rows_of(rows: Ints, places: Ints) -> Ints:
    if not len(rows):
        return np.full(len(places), NO_ROW, np.int64)
    return np.where(places == NO_ROW, NO_ROW, rows[places])


def api_table(
    calls: Calls | None,
    host: HostTable | None,
    threads: ThreadIndex,
    processes: ProcessKeys,
    origin: int,
) -> ApiTable | None:
    """``api_calls``; None if CUDA was not traced."""
    if calls is None:
        return None
    order = np.lexsort((-calls.end, calls.start))
    start, end = calls.start[order] - origin, calls.end[order] - origin
    tid = calls.tid[order]
    thread = threads.positions(tid)
    host_op = np.full(len(start), NO_ROW, np.int64)
    if host is not None:
        host_op = _rows_of(host.nested_row, innermost(host.nested, thread, start, end))
    correlation = processes.keyed(threads.pids(tid), calls.correlation[order])
    rank, no_rank = threads.ranks(tid)
    made = table(
        "api_calls",
        {
            "start_ns": start,
            "duration_ns": end - start,
            "name": calls.name[order],
            "kind": calls.kind[order],
            "thread": thread,
            "rank": rank,
            "correlation": correlation,
            "host_op": host_op,
        },
        {"rank": no_rank, "correlation": correlation < 0, "host_op": host_op == NO_ROW},
    )
    by_key = np.argsort(correlation, kind="stable")
    by_key = by_key[correlation[by_key] >= 0]
    return ApiTable(made, correlation[by_key], by_key)


def steps_table(
    ranges: Ranges | None, markers: StepMarkers | None, threads: ThreadIndex, origin: int
) -> Table | None:
    """``steps`` from the ranges that mark them; empty if none does, None without NVTX."""
    if ranges is None:
        return None
    rows = np.zeros(0, np.int64) if markers is None else markers.rows
    numbers = np.zeros(0, np.int64) if markers is None else markers.numbers
    order = np.lexsort((-ranges.end[rows], ranges.start[rows]))
    rows, numbers = rows[order], numbers[order]
    rank, no_rank = threads.ranks(ranges.tid[rows])
    columns: Mapping[str, Array] = {
        "start_ns": ranges.start[rows] - origin,
        "duration_ns": ranges.end[rows] - ranges.start[rows],
        "name": ranges.name[rows],
        "number": numbers,
        "thread": threads.positions(ranges.tid[rows]),
        "rank": rank,
    }
    return table("steps", columns, {"number": numbers < 0, "rank": no_rank})
