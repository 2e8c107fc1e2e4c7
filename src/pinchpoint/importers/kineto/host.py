"""The tables of the host side: operators, steps, runtime calls."""

from typing import NamedTuple

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.importers.kineto.clock import Clock, Spans
from pinchpoint.importers.kineto.columns import Columns, Interned, known
from pinchpoint.importers.kineto.reading.fields import PLACE, Lane
from pinchpoint.importers.kineto.reading.nesting import NONE, Rows
from pinchpoint.importers.kineto.reading.rare import Rare
from pinchpoint.importers.kineto.reading.scanner import ScannerName, nest
from pinchpoint.importers.kineto.recorder import sign_of_torch
from pinchpoint.importers.kineto.threads import Threads
from pinchpoint.regex import regex
from pinchpoint.trace import ApiKind, HostKind, Names, Table, empty_table, table
from pinchpoint.trace.arrays import Array
from pinchpoint.trace.engine_steps import engine_step
from pinchpoint.trace.kinds import api_kind, without_version

# ------------------------------------------------------------------------------------------------
# What a host event is, from its category and name.


STEP = regex(r"ProfilerStep#(\d+)")

_MODULE_PREFIX = "nn.Module: "
# torch wraps each phase of compilation in a record_function of this form.
_TIMED_COMPILATION = "(dynamo_timed)"
# Ranges that torch writes with the category of an operator: before 2022 all of them, and still
# those around code that dynamo compiled, which is execution. And the operator of functional
# collectives that waits: nothing is computed in it.
_ANNOTATION = regex(
    r"ProfilerStep#|enumerate\(|Optimizer\.\w+#|#+ |Torch-Compiled Region|Pregraph bytecode"
    r"|TorchDynamo Cache Lookup|DistributedDataParallel\.|FullyShardedDataParallel\."
    r"|(?:gloo|mpi|ucc|nccl):"
    r"|_c10d_functional::wait_tensor$"
)

_OPERATOR_CATEGORIES = ("cpu_op", "Operator", "Op")  # today, of 2021, of TensorFlow 1
_OPERATOR = regex(r"(?:aten|autograd)::\w")  # as autograd's profiler writes it, without a category
# Functions of viztracer: ``step (train.py:29)`` where Kineto has ``train.py(29): step``, and
# ``builtins.len`` where it has ``<built-in function len>``.
VIZTRACER_CATEGORIES = (b"FEE", b"fee")  # small letters: version 1.1.1
_OF_VIZTRACER = regex(r"(?:([^()]+) \((.+):(\d+)\)|([\w.]*\.)([\w<>]+))$")


# As tracers of their own write calls of a driver, without a category: cuMemcpyDtoHAsync_v2.
_DRIVER_CALL = regex(r"(?:cu|cuda|hip)[A-Z]\w*$")


def is_driver_call(name: str) -> bool:
    """Whether it is called as what gives a device work, memory or orders, or waits for it."""
    return _DRIVER_CALL.match(name) is not None and api_kind(name) != ApiKind.OTHER


def frame_of_viztracer(name: str) -> str:
    """A function of viztracer in the words of Kineto; what is none stays."""
    found = _OF_VIZTRACER.match(name)
    if found is None:
        return name
    function, file, line, _, built_in = found.groups()
    return f"<built-in function {built_in}>" if built_in else f"{file}({line}): {function}"


def host_kind(category: str, name: str) -> HostKind:
    """The kind of a host event."""
    match category:
        case "overhead":
            return HostKind.OVERHEAD
        case "FEE" | "fee":
            return HostKind.PYTHON
        case "python_function":
            if name.startswith(_MODULE_PREFIX):
                return HostKind.MODULE
            return HostKind.PYTHON
    if name.endswith(_TIMED_COMPILATION):
        return HostKind.COMPILE
    if not category and _OPERATOR.match(name):
        return HostKind.OPERATOR
    if category in _OPERATOR_CATEGORIES:
        return HostKind.ANNOTATION if _ANNOTATION.match(name) else HostKind.OPERATOR
    return HostKind.ANNOTATION


# ------------------------------------------------------------------------------------------------
# The tables of the host side: operators, steps, runtime calls.


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
    rare: Rare


class HostTables(NamedTuple):
    """The tables of the host side, how often operators cross operators, and PyTorch's signs."""

    host_ops: Table
    api_calls: Table
    steps: Table
    crossings: int
    shows_torch: bool  # see recorder.py


def host_tables(sources: Sources) -> HostTables:
    """Build the tables of the host side."""
    columns, clock = sources.columns, sources.clock
    host = clock.spans(columns, Lane.HOST)
    calls = clock.spans(columns, Lane.API)
    host_thread = _threads(sources, Lane.HOST, host)
    call_thread = _threads(sources, Lane.API, calls)
    category, name = columns.take(Lane.HOST, "category"), columns.take(Lane.HOST, "name")
    shows_torch = bool(sources.interned.chosen_by_two(category, name, sign_of_torch).any())
    kind = host.of(sources.interned.chosen_by_two(category, name, host_kind))
    is_operator = (kind == HostKind.OPERATOR).view(np.uint8)
    nesting = nest(
        Rows(host.start, host.start + host.duration, host_thread, is_operator),
        (calls.start, calls.start + calls.duration, call_thread),
        len(sources.threads),
        sources.scanner,
    )
    given = {"thread": host_thread, "kind": kind, "parent": nesting.parent}
    of_viztracer = any(category in columns.texts for category in VIZTRACER_CATEGORIES)
    given["name"] = host.of(
        sources.interned.renamed(name, frame_of_viztracer)
        if of_viztracer
        else sources.interned.strings(name)[0]
    )
    host_ops = _host_ops(sources, host, given)
    api_calls = _api_calls(sources, calls, call_thread, nesting.enclosing)
    steps = _steps(host_ops, sources.names)
    return HostTables(host_ops, api_calls, steps, nesting.crossings, shows_torch)


def _threads(sources: Sources, lane: Lane, spans: Spans) -> Array:
    return spans.of(sources.threads.positions(sources.columns.take(lane, PLACE)))


def _host_ops(sources: Sources, spans: Spans, given: dict[str, Array]) -> Table:
    take, interned = sources.columns.take_sparse, sources.interned
    out = given | {"start_ns": spans.start, "duration_ns": spans.duration}
    missing = {"parent": given["parent"] == NONE}
    external = sources.columns.take_or(Lane.HOST, "external", "external_2021")
    out["external_id"], missing["external_id"] = known(spans.of(external))
    # Negative: an operator that makes no node of the backward pass (torch_npu writes its -1).
    out["sequence"] = spans.of(take(Lane.HOST, "sequence"))
    missing["sequence"] = out["sequence"] < 0
    shapes = sources.columns.take_or(Lane.HOST, "shapes", "shapes_2021")
    shapes = spans.of(shapes)
    out["shapes"], missing["shapes"] = interned.json(shapes)
    if _all_empty(sources, shapes):
        missing["shapes"] = np.ones(len(shapes), np.bool_)
    for column in ("dtypes", "strides", "values"):
        out[column], missing[column] = interned.json(spans.of(take(Lane.HOST, column)))
    out["event"] = spans.of(take(Lane.HOST, "event"))
    return table("host_ops", out | _rank(sources, len(spans.start)), missing)


def _all_empty(sources: Sources, shapes: Array) -> bool:
    """Whether shapes were not recorded: PyTorch 1.8 then writes a list without elements for all."""
    text = int(shapes.max(initial=-1))
    if text < 0 or sources.interned.texts[text].strip() != b"[]":
        return False
    return bool(np.all((shapes == text) | (shapes < 0)))


def _rank(sources: Sources, rows: int) -> dict[str, Array]:
    if sources.rank is None:
        return {}
    return {"rank": np.broadcast_to(np.int32(sources.rank), (rows,))}


def _api_calls(sources: Sources, spans: Spans, thread: Array, enclosing: Array) -> Table:
    take, interned = sources.columns.take_sparse, sources.interned
    name = take(Lane.API, "name")
    correlation = take(Lane.API, "correlation")
    external = sources.columns.take_or(Lane.API, "external", "external_2021")
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
    numbers = {i: number for i, number in numbers.items() if number < 2**63}
    rows = _annotations(host_ops, names, list(numbers))
    if not len(rows):  # rounds of a serving engine, which are not numbered
        rounds = [i for i in range(len(names)) if engine_step(names[i])]
        rows = _annotations(host_ops, names, rounds)
    if not len(rows):
        return empty_table("steps")
    steps = host_ops.take(rows)
    columns = {c: steps[c] for c in ("start_ns", "duration_ns", "name", "thread", "rank")}
    counted = enumerate(steps["name"].tolist())
    columns["number"] = np.array([numbers.get(i, at) for at, i in counted], np.int64)
    missing = {"rank": ~steps.known("rank")}
    return table("steps", columns, missing)


def _annotations(host_ops: Table, names: Names, wanted: list[int]) -> Array:
    """Rows of the annotations with these names, each once."""
    is_one = np.zeros(len(names) + 1, np.bool_)
    is_one[wanted] = True
    rows = np.flatnonzero(is_one[host_ops["name"]] & (host_ops["kind"] == HostKind.ANNOTATION))
    return _without_repeats(host_ops, rows)


def _without_repeats(host_ops: Table, rows: Array) -> Array:
    """Some versions write a marker twice, as an annotation and as an operator."""
    columns = ("start_ns", "duration_ns", "name", "thread")
    marks = list(zip(*(host_ops[c][rows].tolist() for c in columns), strict=True))
    first = {mark: row for row, mark in reversed(list(zip(rows.tolist(), marks, strict=True)))}
    return np.array(sorted(first.values()), np.int64)


__all__ = ["Sources", "host_tables"]
