"""Where JAX's thread waits for arrays: calls like those by which others wait for an event.

XLA runs what it is asked for on its own threads, so no call of the driver is recorded while the
program waits: only the range or the frame of JAX in which it does, or nothing (``silent_waits``).
"""

from collections.abc import Mapping

import numpy as np

from pinchpoint.importers.xplane.silent_waits import SilentWaits
from pinchpoint.regex import regex
from pinchpoint.trace import ApiKind, HostKind, Names, Table, table
from pinchpoint.trace.arrays import Array, Mask
from pinchpoint.trace.kinds import UNRECORDED_WAIT

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
    return _with_rows(
        calls,
        {
            "start_ns": host["start_ns"][rows],
            "duration_ns": host["duration_ns"][rows],
            "name": host["name"][rows],
            "kind": np.full(len(rows), ApiKind.SYNC_EVENT, np.uint8),
            "thread": host["thread"][rows],
        },
    )


def with_silent_waits(
    rows: Table, waits: SilentWaits, names: Names, kind: ApiKind | HostKind
) -> Table:
    """The table with a row of this kind for each wait."""
    return _with_rows(
        rows,
        {
            "start_ns": waits.start_ns,
            "duration_ns": waits.end_ns - waits.start_ns,
            "name": np.full(len(waits.start_ns), names.id_of(UNRECORDED_WAIT), np.int32),
            "kind": np.full(len(waits.start_ns), kind, np.uint8),
            "thread": waits.thread,
        },
    )


def _with_rows(rows: Table, added: Mapping[str, Array]) -> Table:
    """The table with more rows, in order of their starts; their other columns are null."""
    columns: dict[str, Array] = {}
    missing: dict[str, Mask] = {}
    start = np.concatenate((rows["start_ns"], added["start_ns"]))
    order, more = np.argsort(start, kind="stable"), len(added["start_ns"])
    for column in dict.fromkeys((*rows.columns, *added)):
        old = rows.columns.get(column, np.zeros(len(rows), np.int64))
        new = added.get(column, np.zeros(more, old.dtype))
        columns[column] = np.concatenate((old, new)).astype(old.dtype)[order]
        holes = np.concatenate((~rows.known(column), np.full(more, column not in added)))
        if holes.any():
            missing[column] = holes[order]
    return table(rows.name, columns, missing)


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
