"""Where JAX's thread waits for arrays: calls like those by which others wait for an event.

XLA runs what it is asked for on its own threads, so no call of the driver is recorded while the
program waits: only the range or the frame of JAX in which it does.
"""

import numpy as np

from pinchpoint.regex import regex
from pinchpoint.trace import ApiKind, Names, Table, table
from pinchpoint.trace.arrays import Array, Mask

# JAX's own range around reading an array, and its functions that wait for arrays.
_WAITS = regex(
    r"np\.asarray\(jax\.Array\)"
    r"|jax/_src/(?:api|array)\.py\(\d{1,9}\): (?:block_until_ready|_value)"
)


def with_waits(host: Table, calls: Table, names: Names) -> Table:
    """``api_calls`` with one that waits for an event for each outermost such range."""
    ids = [i for i in range(len(names)) if _WAITS.fullmatch(names[i])]
    rows = np.flatnonzero(np.isin(host["name"], ids)) if ids else np.zeros(0, np.intp)
    rows = rows[_outermost(host, rows)]
    if not len(rows):
        return calls
    added = {
        "start_ns": host["start_ns"][rows],
        "duration_ns": host["duration_ns"][rows],
        "name": host["name"][rows],
        "kind": np.full(len(rows), ApiKind.SYNC_EVENT, np.uint8),
        "thread": host["thread"][rows],
    }
    columns: dict[str, Array] = {}
    missing: dict[str, Mask] = {}
    start = np.concatenate((calls["start_ns"], added["start_ns"]))
    order = np.argsort(start, kind="stable")
    for column in dict.fromkeys((*calls.columns, *added)):
        old = calls.columns.get(column, np.zeros(len(calls), np.int64))
        new = added.get(column, np.zeros(len(rows), old.dtype))
        columns[column] = np.concatenate((old, new)).astype(old.dtype)[order]
        holes = np.concatenate((~calls.known(column), np.full(len(rows), column not in added)))
        if holes.any():
            missing[column] = holes[order]
    return table(calls.name, columns, missing)


def _outermost(host: Table, rows: Array) -> Array:
    """Of the rows, those that no other one encloses on its thread."""
    order = np.lexsort((-host["duration_ns"][rows], host["start_ns"][rows], host["thread"][rows]))
    kept, until, thread = [], 0, -1
    ends = host.end_ns[rows]
    for at in order.tolist():
        row = rows[at]
        if host["thread"][row] != thread or host["start_ns"][row] >= until:
            kept.append(at)
            until, thread = int(ends[at]), int(host["thread"][row])
    return np.sort(np.array(kept, np.intp))
