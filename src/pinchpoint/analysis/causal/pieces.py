"""Which piece of the program each host row and each device operation belongs to.

A step is cut in several ways at once: by operator, kernel, function, source line, module, phase,
copy, collective and wait. In each, a host row and a device operation belong to one piece or none.
"""

from collections.abc import Callable
from enum import Enum

import numpy as np

from pinchpoint.analysis.device.compiled import compiled_rows
from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.attribution import backward_nodes, called_by_operators
from pinchpoint.analysis.host.graph_replays import of_operators
from pinchpoint.analysis.host.launches import main_thread
from pinchpoint.analysis.host.source_lines import places
from pinchpoint.analysis.host.timeline import NO_ROW, host_rows
from pinchpoint.analysis.steps.in_steps import judged_steps, rows_in_steps
from pinchpoint.analysis.work.phases import (
    BACKWARD,
    BETWEEN_RANKS,
    LABELS,
    RECOMPUTED,
    phase_of_device_ops,
    phase_of_host_ops,
)
from pinchpoint.frozen import dataclass
from pinchpoint.regex import regex
from pinchpoint.trace import ApiKind, DeviceKind, HostKind, Trace
from pinchpoint.trace.arrays import Ints, Mask, distinct


class Cut(Enum):
    """The ways to cut a step into pieces."""

    OPERATOR = "operator"  # innermost operator of the framework; operations of compiled programs
    KERNEL = "kernel"
    # Innermost function of the program, by the line that it was entered at; of compiled programs
    # the line itself.
    LINE = "line"
    FUNCTION = "function"  # innermost Python function, whosever it is
    MODULE = "module"
    PHASE = "phase"  # what the program marks; operators outside of marks: forward, backward, …
    COPY = "copy"
    COLLECTIVE = "collective"
    WAIT = "wait"  # calls that wait for the device


NOBODYS = -1  # belongs to no piece


@dataclass(frozen=True, eq=False)
class Pieces:
    """Positions in ``trace.names`` of the piece's name, or NOBODYS; those of ``labels`` go on after
    them.

    ``host`` has one element for each of ``host_rows`` and one more for none; ``device`` one for
    each row of ``device_ops``.
    """

    host: Ints
    device: Ints
    labels: tuple[str, ...] = ()

    def name(self, trace: Trace, at: int) -> str:
        """The name at a position."""
        given = len(trace.names)
        return trace.names[at] if at < given else self.labels[at - given]

    def position(self, trace: Trace, name: str) -> int:
        """Where a piece's name is."""
        if name in self.labels:
            return len(trace.names) + self.labels.index(name)
        return trace.names.index(name)


def pieces(trace: Trace, cut: Cut) -> Pieces:
    """The pieces of one cut."""
    return _CUTS[cut](trace, cut)


def _launch_rows(trace: Trace) -> Ints:
    """Of each device operation the row of ``host_rows`` that launched it, or NO_ROW."""
    ops, rows = trace.device_ops, host_rows(trace)
    if ops is None:
        return np.zeros(0, np.int64)
    call, host = ops.filled("api_call", -1), ops.filled("host_op", -1)
    return np.where(call >= 0, call + rows.operators, host).astype(np.int64)


def _by_host(trace: Trace, host: Ints) -> Pieces:
    """Device operations belong where their launch does."""
    return Pieces(host, host[_launch_rows(trace)])


def _operator(trace: Trace, cut: Cut) -> Pieces:
    rows, host = host_rows(trace), trace.host_ops
    kind = np.zeros(len(rows), np.uint8)
    if host is not None:
        kind[: rows.operators] = host["kind"]
    found = _named(trace, kind == HostKind.OPERATOR)
    device, compiled = operators_of_device_ops(trace), trace.compiled_ops
    if compiled is None or not len(compiled):
        return Pieces(found, device)
    of_program = np.append(compiled["op"].astype(np.int64), NOBODYS)[compiled_rows(trace)]
    return Pieces(found, np.where(of_program == NOBODYS, device, of_program))


def compiled_names(trace: Trace) -> frozenset[str]:
    """Names of the operations of compiled programs; empty where there are none."""
    rows = trace.compiled_ops
    if rows is None:
        return frozenset()
    return frozenset(trace.names[at] for at in np.unique(rows["op"]).tolist())


def operators_of_device_ops(trace: Trace) -> Ints:
    """Name of the operator that launched each row of ``device_ops``, or NOBODYS; of a replay the
    operator that was captured, in this recording or another one."""
    return of_operators(trace, lambda rows: rows["name"].astype(np.int64), NOBODYS)


def _function(trace: Trace, cut: Cut) -> Pieces:
    rows, host = host_rows(trace), trace.host_ops
    kind = np.zeros(len(rows), np.uint8)
    if host is not None:
        kind[: rows.operators] = host["kind"]
    found = _named(trace, kind == HostKind.PYTHON)
    return _by_host(trace, np.append(_one_spelling(trace), NOBODYS)[found])


# "<built-in method sort of Tensor object at 0x7f…>": one function, whichever object it is of.
_OF_OBJECT = regex(r"^<built-in (?:method|function) (\w+)")


def _one_spelling(trace: Trace) -> Ints:
    """For each name the first one that means the same function."""
    first: dict[str, int] = {}
    out = np.arange(len(trace.names), dtype=np.int64)
    for position, name in enumerate(trace.names):
        match = _OF_OBJECT.match(name)
        if match:
            out[position] = first.setdefault(match[1], position)
    return out


def _named(trace: Trace, wanted: Mask) -> Ints:
    """Name of the innermost wanted row that is or encloses each row."""
    rows = host_rows(trace)
    n = len(rows)
    around = nearest(np.where(rows.parent == NO_ROW, n, rows.parent), wanted)
    names = np.append(rows.name.astype(np.int64), NOBODYS)
    return np.append(names[around], NOBODYS)


def _of_places(column: str) -> Callable[[Trace, Cut], Pieces]:
    def cut_by(trace: Trace, cut: Cut) -> Pieces:
        return _by_host(trace, np.asarray(getattr(places(trace), column), np.int64))

    return cut_by


def _line(trace: Trace, cut: Cut) -> Pieces:
    """Of what a compiler made of the program, the line that it made it of, not that of the call."""
    found, compiled = _of_places("frame")(trace, cut), trace.compiled_ops
    if compiled is None or not len(compiled):
        return found
    row = compiled_rows(trace)
    first: dict[str, int] = {}
    place = np.full(len(trace.names), NOBODYS, np.int64)
    for position in distinct(compiled["source"][compiled.known("source")]).tolist():
        if match := _COMPILED_PLACE.match(trace.names[position]):
            place[position] = first.setdefault(match[0], position)
    told = np.where(compiled.known("source"), place[compiled["source"]], NOBODYS)
    told = np.append(told, NOBODYS)[row]
    return Pieces(found.host, np.where(told == NOBODYS, found.device, told))


_COMPILED_PLACE = regex(r"(?:[^,\n]*/)?([^/,\n]+\.py:\d+)(?=,|$)")


def compiled_place(name: str) -> str | None:
    """``model.py:41`` of ``/my/model.py:41, jit(step)/dot``; None for the name of another piece."""
    match = _COMPILED_PLACE.match(name)
    return match[1] if match else None


_DEVICE_KINDS = {
    Cut.KERNEL: DeviceKind.KERNEL,
    Cut.COPY: DeviceKind.COPY,
    Cut.COLLECTIVE: DeviceKind.COLLECTIVE,
}


def _by_device(trace: Trace, cut: Cut) -> Pieces:
    """By the name of the operation; on the host only the call that launched it."""
    rows, ops = host_rows(trace), trace.device_ops
    host = np.full(len(rows) + 1, NOBODYS, np.int64)
    if ops is None:
        return Pieces(host, np.zeros(0, np.int64))
    mine = ops["kind"] == _DEVICE_KINDS[cut]
    name = np.where(mine, ops["name"], NOBODYS).astype(np.int64)
    call = ops.filled("api_call", -1).astype(np.int64)
    linked = mine & (call >= 0)
    host[rows.operators + call[linked]] = name[linked]
    return Pieces(host, name)


_WAITS = (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM, ApiKind.SYNC_EVENT)


def _wait(trace: Trace, cut: Cut) -> Pieces:
    rows, calls, ops = host_rows(trace), trace.api_calls, trace.device_ops
    host = np.full(len(rows) + 1, NOBODYS, np.int64)
    if calls is not None:
        waits = np.isin(calls["kind"], _WAITS)
        host[rows.operators : -1][waits] = calls["name"][waits]
    return Pieces(host, np.full(0 if ops is None else len(ops), NOBODYS, np.int64))


def _phase(trace: Trace, cut: Cut) -> Pieces:
    """What the program marks, and operators outside of that by what they are part of; Python that
    nobody marked is nobody's."""
    marked, host, rows = _of_places("annotation")(trace, cut), trace.host_ops, host_rows(trace)
    if host is None or not backward_nodes(trace).any():
        return marked
    phase = phase_of_host_ops(trace)
    away = (phase == BACKWARD) | (phase == RECOMPUTED)
    away &= (host["thread"] != main_thread(trace)) & (marked.host[: len(host)] == NOBODYS)
    marks = marked.host.copy()
    marks[np.flatnonzero(away)] = _mark_around(trace, marks, host["start_ns"][away])
    mine, of_calls = marks[: len(host)], marks[rows.operators : -1]
    of_operator = np.where(host["kind"] == HostKind.OPERATOR, len(trace.names) + phase, NOBODYS)
    own = np.append(np.where(mine == NOBODYS, of_operator, mine), NOBODYS)
    around = rows.parent[rows.operators :]  # of calls of the driver
    around = own[np.where((around != NO_ROW) & (around < len(host)), around, len(host))]
    calls = np.where(of_calls == NOBODYS, around, of_calls)
    found = np.concatenate((own[:-1], calls, [NOBODYS]))
    given = {trace.names[at] for at in np.unique(marks[marks != NOBODYS]).tolist()}
    labels = tuple(f"{label} (not marked)" if label in given else label for label in LABELS)
    between = phase_of_device_ops(trace) == BETWEEN_RANKS
    device = found[_launch_rows(trace)]
    return Pieces(found, np.where(between & (device >= len(trace.names)), NOBODYS, device), labels)


def _mark_around(trace: Trace, marks: Ints, times: Ints) -> Ints:
    """What is marked on the main thread at some times: of the backward pass, which runs on another
    thread, around the call that waits for it."""
    host = trace.host_ops
    assert host is not None
    main = np.flatnonzero(host["thread"] == main_thread(trace))
    main = main[np.argsort(host["start_ns"][main], kind="stable")]
    at = np.searchsorted(host["start_ns"][main], times, "right") - 1
    row = np.where(at >= 0, np.append(main, len(host))[at], len(host))
    end, above = np.append(host.end_ns, np.iinfo(np.int64).max), np.append(parents(host), len(host))
    while (over := end[row] < times).any():  # once a level of nesting
        row = np.where(over, above[row], row)
    return np.append(marks[: len(host)], NOBODYS)[row]


_CUTS: dict[Cut, Callable[[Trace, Cut], Pieces]] = {
    Cut.OPERATOR: _operator,
    Cut.KERNEL: _by_device,
    Cut.LINE: _line,
    Cut.FUNCTION: _function,
    Cut.MODULE: _of_places("module"),
    Cut.PHASE: _phase,
    Cut.COPY: _by_device,
    Cut.COLLECTIVE: _by_device,
    Cut.WAIT: _wait,
}


def bought_again(trace: Trace, found: Pieces) -> tuple[int, Mask]:
    """The piece that gives memory back to the driver in most steps, and the host rows in which the
    driver is asked for it again; NOBODYS where no piece does so by itself.

    An operator that frees makes room for its own allocation, and is not meant.
    """
    rows, calls = host_rows(trace), trace.api_calls
    bought = np.zeros(len(found.host), np.bool_)
    if calls is None:
        return NOBODYS, bought
    inside = rows_in_steps(trace, calls)
    frees = np.flatnonzero((calls["kind"] == ApiKind.FREE) & inside & ~called_by_operators(trace))
    mine = found.host[rows.operators + frees]
    given = judged_steps(trace).step_of(calls["start_ns"][frees])
    for name in distinct(mine[mine != NOBODYS]).tolist():
        if len(distinct(given[mine == name])) > MOST_STEPS_RATIO * len(judged_steps(trace)):
            mallocs = np.flatnonzero((calls["kind"] == ApiKind.MALLOC) & inside)
            bought[rows.operators + mallocs] = True
            return name, bought
    return NOBODYS, bought


MOST_STEPS_RATIO = 0.6  # of the steps: a habit of the loop, not one call between phases
