"""The names in the trace that the rows of a table stand for."""

from collections.abc import Callable, Iterator

import numpy as np

from pinchpoint.analysis.frames import frame_of
from pinchpoint.analysis.modules import MODULE_PREFIX
from pinchpoint.report.document import Report, ResultTable
from pinchpoint.report.tables.columns import LONGEST_NAME
from pinchpoint.trace import HostKind, Table, Trace

NamesOfRows = list[tuple[str, ...]]


def names_of_rows(trace: Trace, report: Report) -> Iterator[tuple[str, str, NamesOfRows]]:
    """Of each table whose rows are sums over names: its id, the kind of lane, names row by row."""
    for id_, column, kind, own in (
        ("kernels", "full_name", "device", lambda: _names(trace, trace.device_ops)),
        ("collectives", "full_name", "device", lambda: _names(trace, trace.device_ops)),
        ("operators", "name", "host", lambda: _names(trace, trace.host_ops)),
        ("waits", "call", "host", lambda: _names(trace, trace.api_calls)),
        ("source", "place", "host", lambda: _functions(trace)),
        ("modules", "module", "host", lambda: _modules(trace)),
    ):
        table = report.tables.get(id_)
        if table is not None and any(c.id == column for c in table.columns):
            yield id_, kind, _rows(table, column, own)


def _rows(table: ResultTable, column: str, own: Callable[[], dict[str, list[str]]]) -> NamesOfRows:
    by_text = own()
    position = [c.id for c in table.columns].index(column)
    return [tuple(by_text.get(str(row[position]).strip(), ())) for row in table.rows]


def _names(trace: Trace, rows: Table | None) -> dict[str, list[str]]:
    """Names by what a table shows of them: a very long one is cut there."""
    found: dict[str, list[str]] = {}
    for text in _distinct(trace, rows):
        found.setdefault(text[:LONGEST_NAME].strip(), []).append(text)
    return found


def _functions(trace: Trace) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in _distinct(trace, trace.host_ops, HostKind.PYTHON):
        frame = frame_of(text)
        if frame is not None:
            found.setdefault(f"{frame.file}:{frame.line}"[:LONGEST_NAME], []).append(text)
    return found


def _modules(trace: Trace) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in _distinct(trace, trace.host_ops, HostKind.MODULE):
        found.setdefault(text.removeprefix(MODULE_PREFIX), []).append(text)
    return found


def _distinct(trace: Trace, rows: Table | None, kind: HostKind | None = None) -> list[str]:
    if rows is None or not len(rows):
        return []
    names = rows["name"] if kind is None else rows["name"][rows["kind"] == kind]
    return [trace.names[i] for i in np.flatnonzero(np.bincount(names, minlength=1)).tolist()]


def names_at(trace: Trace, rows: Table | None, at_ns: int | None) -> set[str]:
    """Names of the events that begin at a time."""
    if rows is None or at_ns is None:
        return set()
    first, end = np.searchsorted(rows["start_ns"], (at_ns, at_ns + 1))
    return {trace.names[i] for i in rows["name"][first:end].tolist()}
