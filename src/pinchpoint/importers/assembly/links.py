"""Which call started a device operation, which operator made the call, and what encloses what."""

import numpy as np

from pinchpoint.trace import HostKind, Table, table
from pinchpoint.trace.arrays import Array, Ints
from pinchpoint.trace.intervals import NO_ROW, innermost, nest, nesting_order


def launching_calls(correlation: Array, start: Array, api_calls: Table) -> Array:
    """For each operation the row of the call with its correlation; -1 if there is none.

    ROCm writes 0 for "no correlation". Where processes share a file, or ids wrap around, several
    calls have one id: the last one that began before the operation is taken, else the first.
    """
    ids = api_calls.filled("correlation", 0)
    usable = np.flatnonzero((ids > 0) & api_calls.known("correlation"))
    if not len(usable):
        return np.full(len(correlation), -1, np.int32)
    ids = ids[usable]
    order = np.argsort(ids, kind="stable")  # calls are in order of time already
    usable, ids = usable[order], ids[order]
    low = np.searchsorted(ids, correlation, "left")
    nearest = np.minimum(low, len(ids) - 1)
    call = np.where(ids[nearest] == correlation, usable[nearest], -1)
    if (ids[1:] != ids[:-1]).all():
        return np.asarray(call, np.int32)
    high = np.searchsorted(ids, correlation, "right")
    begins = api_calls["start_ns"]
    for row in np.flatnonzero((high - low > 1) & (correlation > 0)).tolist():
        same = usable[low[row] : high[row]]
        before = int(np.searchsorted(begins[same], start[row], "right"))
        call[row] = same[max(0, before - 1)]
    return np.asarray(call, np.int32)


def innermost_operator(row: Array, host_ops: Table) -> Array:
    """Climb from each row to the nearest operator; the row itself if there is none above it."""
    if not len(host_ops):
        return row
    parent = host_ops.filled("parent", -1)
    is_operator = host_ops["kind"] == HostKind.OPERATOR
    current = row.copy()
    climbing = np.flatnonzero((row >= 0) & ~is_operator[row])
    while len(climbing):
        current[climbing] = parent[current[climbing]]
        here = current[climbing]
        climbing = climbing[(here >= 0) & ~is_operator[here]]
    return np.where(current >= 0, current, row)


def rows_by_external_id(external: Array, start: Array, host_ops: Table) -> Array:
    """The operator that was current at the launch, where no launch is in the file.

    An id counts only if exactly one host row has it and began before the operation: old files
    repeat ids, use 0 for none, or give device operations ids of their own.
    """
    found = np.full(len(external), -1, np.int32)
    if not len(external):
        return found
    rows = np.flatnonzero(host_ops.known("external_id") & (host_ops["external_id"] > 0))
    if not len(rows):
        return found
    ids = host_ops["external_id"][rows]
    order = np.argsort(ids, kind="stable")
    ids, rows = ids[order], rows[order]
    low = np.searchsorted(ids, external, "left")
    unique = np.searchsorted(ids, external, "right") - low == 1
    hits = np.flatnonzero(unique)
    candidates = rows[low[hits]]
    begun = host_ops["start_ns"][candidates] <= start[hits]
    found[hits[begun]] = candidates[begun]
    return found


def innermost_rows(rows: Table, start: Ints, thread: Ints, end: Ints | None = None) -> Ints:
    """Of each moment or span on a thread the innermost row that encloses it; -1 for none."""
    if not len(rows):
        return np.full(len(start), -1, np.int64)
    group, begins, ends = rows["thread"].astype(np.int64), rows["start_ns"], rows.end_ns
    order = nesting_order(group, begins, ends)
    nested = nest(group[order], begins[order], ends[order])
    found = innermost(nested, thread, start, start if end is None else end)
    return np.where(found == NO_ROW, -1, order[found])


def with_enclosing(calls: Table, host: Table) -> Table:
    """The calls with the innermost row of the host that encloses each."""
    if not len(calls) or not len(host):
        return calls
    row = innermost_rows(host, calls["start_ns"], calls["thread"].astype(np.int64), calls.end_ns)
    return table(
        "api_calls",
        {**calls.columns, "host_op": np.maximum(row, 0)},
        {**calls.missing, "host_op": row < 0},
    )
