"""A part of a recording as a trace of its own: what the host did in a span of time, and the work
that it gave to devices meanwhile."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pinchpoint.trace.arrays import Array, Mask
from pinchpoint.trace.table import Table, table
from pinchpoint.trace.tables import TABLES
from pinchpoint.trace.trace import Trace

_IN_TIME = ("api_calls", "steps", "counters", "allocations", "flows", "compiled_ops")


class Part(NamedTuple):
    """A span of a recording's time, since its first event; None: to its end.

    Or the step of a number: a reader that keeps a part finds out when it ran (``since_ns``: of the
    file's own clock), or keeps all.
    """

    from_ns: int
    to_ns: int | None
    since_ns: int | None = None
    step: int | None = None


class _Cut(NamedTuple):
    """Where host rows end at the latest."""

    from_ns: int
    to_ns: int


def window(trace: Trace, from_ns: int, to_ns: int) -> Trace:
    """What happened from one time to another, both since ``Trace.origin_ns``.

    Host rows that reach out of the span are cut at its ends. Device operations belong where their
    launch is, and without one where they begin; so device work may end after the span. Markers of
    steps count where they begin. The allocator's snapshot and the facts of the run stay.
    """
    kept = {name: _kept(trace, name, from_ns, to_ns) for name in TABLES}
    rows = {name: mask for name, mask in kept.items() if mask is not None}
    return only(trace, rows, _Cut(from_ns, to_ns))


def only(trace: Trace, kept: Mapping[str, Mask], cut: _Cut | None = None) -> Trace:
    """A trace of some rows of its tables; references to rows that are left out become null."""
    places = {name: _places(mask) for name, mask in kept.items()}
    tables = {name: _taken(getattr(trace, name), mask, places, cut) for name, mask in kept.items()}
    return replace(trace, **tables)  # type: ignore[arg-type]


def _kept(trace: Trace, name: str, from_ns: int, to_ns: int) -> Mask | None:
    rows = getattr(trace, name, None)
    if not isinstance(rows, Table):
        return None
    if name == "host_ops":
        return (rows["start_ns"] < to_ns) & (rows.end_ns > from_ns)
    if name == "device_ops":
        return _between(_asked_at(trace, rows), from_ns, to_ns)
    if name == "device_annotations" or name in _IN_TIME:
        return _between(
            rows["time_ns" if "time_ns" in rows.columns else "start_ns"], from_ns, to_ns
        )
    return None


def _asked_at(trace: Trace, operations: Table) -> Array:
    """When each device operation was launched; where that is not known, when it began."""
    calls = trace.api_calls
    asked = operations["start_ns"].copy()
    if calls is not None and len(calls):
        known = operations.known("api_call")
        asked[known] = calls["start_ns"][operations["api_call"][known]]
    return asked


def _between(times: Array, from_ns: int, to_ns: int) -> Mask:
    mask: Mask = (times >= from_ns) & (times < to_ns)
    return mask


def _places(mask: Mask) -> Array:
    """Of each old row its new position, -1 for those that are left out; and last for no row."""
    return np.append(np.where(mask, np.cumsum(mask) - 1, -1), -1).astype(np.int32)


def _taken(rows: Table, mask: Mask, places: Mapping[str, Array], cut: _Cut | None) -> Table:
    taken = rows.take(np.flatnonzero(mask))
    columns, missing = dict(taken.columns), dict(taken.missing)
    for column, declared in TABLES[rows.name].items():
        target = declared.refers_to.removeprefix("row:")
        if declared.refers_to.startswith("row:") and target in places and column in columns:
            moved = places[target][np.where(taken.known(column), columns[column], -1)]
            missing[column] = ~taken.known(column) | (moved < 0)
            columns[column] = np.where(missing[column], 0, moved)
    if cut is not None and rows.name == "host_ops":
        end = np.minimum(taken.end_ns, cut.to_ns)
        columns["start_ns"] = np.maximum(taken["start_ns"], cut.from_ns)
        columns["duration_ns"] = end - columns["start_ns"]
    return table(rows.name, columns, missing)
