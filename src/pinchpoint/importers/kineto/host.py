"""The tables of the host side: operators, steps, runtime calls."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinchpoint.importers.kineto.clock import Clock, Spans
from pinchpoint.importers.kineto.columns import Columns, Interned, first_known, known
from pinchpoint.importers.kineto.fields import PLACE, Lane
from pinchpoint.importers.kineto.host_kinds import STEP, host_kind
from pinchpoint.importers.kineto.nesting import NONE
from pinchpoint.importers.kineto.scanner import ScannerName, nest
from pinchpoint.importers.kineto.threads import Threads
from pinchpoint.trace import HostKind, Names, Table, empty_table, table
from pinchpoint.trace.call_names import api_kind, without_version

Array = NDArray[Any]


@dataclass
class Sources:
    """What every table is built from."""

    columns: Columns
    interned: Interned
    names: Names
    threads: Threads
    clock: Clock
    rank: int | None
    scanner: ScannerName


def host_tables(sources: Sources) -> tuple[Table, Table, Table]:
    """``host_ops``, ``api_calls`` and ``steps``."""
    columns, clock = sources.columns, sources.clock
    host = clock.spans(columns, Lane.HOST)
    calls = clock.spans(columns, Lane.API)
    host_thread = _threads(sources, Lane.HOST, host)
    call_thread = _threads(sources, Lane.API, calls)
    parent, enclosing = nest(
        host.start,
        host.start + host.duration,
        host_thread,
        (calls.start, calls.start + calls.duration, call_thread),
        len(sources.threads),
        sources.scanner,
    )
    host_ops = _host_ops(sources, host, host_thread, parent)
    api_calls = _api_calls(sources, calls, call_thread, enclosing)
    return host_ops, api_calls, _steps(host_ops, sources.names)


def _threads(sources: Sources, lane: Lane, spans: Spans) -> Array:
    return spans.of(sources.threads.positions(sources.columns.take(lane, PLACE)))


def _host_ops(sources: Sources, spans: Spans, thread: Array, parent: Array) -> Table:
    columns, interned = sources.columns, sources.interned
    take = columns.take
    out: dict[str, Array] = {"start_ns": spans.start, "duration_ns": spans.duration}
    missing: dict[str, Array] = {}
    category, name = take(Lane.HOST, "category"), take(Lane.HOST, "name")
    out["kind"] = spans.of(_host_kinds(interned, category, name))
    out["name"] = spans.of(interned.strings(name)[0])
    out["thread"] = thread
    out["parent"], missing["parent"] = parent, parent == NONE
    external = first_known(take(Lane.HOST, "external"), take(Lane.HOST, "external_2021"))
    out["external_id"], missing["external_id"] = known(spans.of(external))
    out["sequence"], missing["sequence"] = known(spans.of(take(Lane.HOST, "sequence")))
    shapes = np.maximum(take(Lane.HOST, "shapes"), take(Lane.HOST, "shapes_2021"))
    out["shapes"], missing["shapes"] = interned.json(spans.of(shapes))
    for column in ("dtypes", "strides", "values"):
        out[column], missing[column] = interned.json(spans.of(take(Lane.HOST, column)))
    out["event"] = spans.of(take(Lane.HOST, "event"))
    return table("host_ops", out | _rank(sources, len(thread)), missing)


def _host_kinds(interned: Interned, category: Array, name: Array) -> Array:
    return interned.chosen_by_two(category, name, host_kind)


def _rank(sources: Sources, rows: int) -> dict[str, Array]:
    if sources.rank is None:
        return {}
    return {"rank": np.broadcast_to(np.int32(sources.rank), (rows,))}


def _api_calls(sources: Sources, spans: Spans, thread: Array, enclosing: Array) -> Table:
    take, interned = sources.columns.take, sources.interned
    name = take(Lane.API, "name")
    correlation, external = take(Lane.API, "correlation"), take(Lane.API, "external")
    external = first_known(external, take(Lane.API, "external_2021"))
    out: dict[str, Array] = {
        "start_ns": spans.start,
        "duration_ns": spans.duration,
        "name": spans.of(interned.renamed(name, without_version)),
        "kind": spans.of(interned.chosen(name, api_kind)),
        "thread": thread,
        "correlation": spans.of(correlation),
        "external_id": spans.of(external),
        "host_op": enclosing,
        "event": spans.of(take(Lane.API, "event")),
    }
    missing = {
        "correlation": known(out["correlation"])[1],
        "external_id": known(out["external_id"])[1],
        "host_op": enclosing == NONE,
    }
    return table("api_calls", out | _rank(sources, len(thread)), missing)


def _steps(host_ops: Table, names: Names) -> Table:
    numbers = {i: int(m[1]) for i in range(len(names)) if (m := STEP.fullmatch(names[i]))}
    is_step = np.zeros(len(names) + 1, np.bool_)
    is_step[[i for i, number in numbers.items() if number < 2**63]] = True
    rows = np.flatnonzero(is_step[host_ops["name"]] & (host_ops["kind"] == HostKind.ANNOTATION))
    if not len(rows):
        return empty_table("steps")
    steps = host_ops.take(rows)
    columns = {c: steps[c] for c in ("start_ns", "duration_ns", "name", "thread", "rank")}
    columns["number"] = np.array([numbers[i] for i in steps["name"].tolist()], np.int64)
    missing = {"rank": ~steps.known("rank")}
    return table("steps", columns, missing)


__all__ = ["Sources", "host_tables"]
