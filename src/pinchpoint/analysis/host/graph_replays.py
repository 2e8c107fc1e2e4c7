"""Which operators the kernels of a graph replay come from, where its capture was recorded too.

A capture runs nothing: its launches have no device work of their own. The operations of a replay
are those launches again, in their order. So a replay belongs to a capture that ended before it and
has as many launches of the same kinds; where several do, all of them have to name the same
operators in the same order. On several streams the order is known by the numbers of the nodes only.
Serving engines are recorded while they capture and while they serve: two recordings of one program,
of which ``with_captures`` gives the second what the first says.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.attribution import launching_operators
from pinchpoint.frozen import dataclass
from pinchpoint.trace import (
    ApiKind,
    DeviceKind,
    GraphCapture,
    HostKind,
    Names,
    Table,
    Trace,
    once_per_trace,
    table,
)
from pinchpoint.trace.arrays import Array, Codes, Mask, Rows
from pinchpoint.trace.names import rows_named

_KINDS = {
    ApiKind.LAUNCH: DeviceKind.KERNEL,
    ApiKind.COPY: DeviceKind.COPY,
    ApiKind.MEMSET: DeviceKind.MEMSET,
}
_EARLIER = -(1 << 62)  # nanoseconds: another recording has another clock
_MOST_CAPTURES = 1000  # engines capture a graph a batch size, dozens


@dataclass(frozen=True, eq=False)
class _Capture:
    """The launches of one capture, in order."""

    end_ns: int  # before every replay where it is of another recording
    kinds: Codes  # of what they start on the device
    operators: Rows  # around each, rows of the operators' table; their number where there is none
    names: Rows  # of these


@once_per_trace
def originating_operators(trace: Trace) -> Rows:
    """As ``launching_operators``, and of replayed graphs the operator that was captured.

    ``len(host_ops)`` where neither is known.
    """
    found, captures = launching_operators(trace), list(_captures(trace))
    if not captures:
        return found
    ops, calls, found = trace.device_ops, trace.api_calls, found.copy()
    assert ops is not None
    assert calls is not None
    for launch, rows in _replays(ops, calls):
        began = int(calls["start_ns"][launch])
        if (capture := _fitting(captures, _kinds(ops["kind"][rows]), began)) is not None:
            found[rows] = capture.operators
    return found


def of_operators(trace: Trace, say: Callable[[Table], Array], unknown: int) -> Array:
    """What ``say`` tells of each operator, for each device operation that comes from one."""
    host, captured = trace.host_ops, trace.captured_ops
    told = say(host) if host is not None else np.zeros(0, np.int64)
    found: Array = np.append(told, unknown)[originating_operators(trace)]
    if captured is None:
        return found
    rows = _from_elsewhere(trace)
    return np.where(rows < len(captured), np.append(say(captured), unknown)[rows], found)


@once_per_trace
def _from_elsewhere(trace: Trace) -> Rows:
    """The row of ``captured_ops`` that each device operation comes from; their number for none."""
    ops, calls, captured = trace.device_ops, trace.api_calls, trace.captured_ops
    none = 0 if captured is None else len(captured)
    found = np.full(0 if ops is None else len(ops), none, np.intp)
    if ops is None or calls is None or captured is None:
        return found
    captures = _of_another(trace, captured)
    for launch, rows in _replays(ops, calls):
        began = int(calls["start_ns"][launch])
        if (capture := _fitting(captures, _kinds(ops["kind"][rows]), began)) is not None:
            found[rows] = capture.operators
    return found


@dataclass(frozen=True, eq=False)
class Replayed:
    """For each row of ``device_ops``, the captured operator that it is a launch of, and in which
    replay; each operator of each replay has a number of its own, -1 for what is no such launch."""

    captured: Table  # host_ops, or captured_ops of another recording
    rows: Rows  # of it
    call: Rows


@once_per_trace
def replayed(trace: Trace) -> Replayed | None:
    """None where no capture of a replayed graph was recorded."""
    ops, calls, host = trace.device_ops, trace.api_calls, trace.host_ops
    if ops is None or calls is None or host is None:
        return None
    captured = trace.captured_ops
    if captured is None:
        captured, captures = host, list(_captures(trace))
    else:
        captures = _of_another(trace, captured)
    rows, number = np.full(len(ops), len(captured), np.intp), np.zeros(len(ops), np.int64)
    for at, (launch, mine) in enumerate(_replays(ops, calls) if captures else ()):
        began = int(calls["start_ns"][launch])
        if (capture := _fitting(captures, _kinds(ops["kind"][mine]), began)) is not None:
            rows[mine], number[mine] = capture.operators, at
    known = np.flatnonzero(rows < len(captured))
    if not len(known):
        return None
    call = np.full(len(ops), -1, np.intp)
    pair = number[known] * len(captured) + rows[known]
    call[known] = np.unique(pair, return_inverse=True)[1].reshape(-1)
    return Replayed(captured, rows, call)


def _of_another(trace: Trace, captured: Table) -> list[_Capture]:
    names = np.append(captured["name"].astype(np.int64), -1)
    return [
        _Capture(_EARLIER, one.kinds, one.operators, names[one.operators]) for one in trace.captures
    ]


def with_captures(trace: Trace, other: Trace) -> tuple[Trace, int]:
    """The trace with what another recording of its program captured, and how many of its device
    operations come from there; the trace itself and 0 where no replay fits."""
    captures, host = list(_captures(other)), other.host_ops
    if not captures or host is None:
        return trace, 0
    used = np.unique(np.concatenate([one.operators for one in captures]))
    used = used[used < len(host)]
    names = Names(trace.names)
    columns: dict[str, Array] = {}
    missing: dict[str, Mask] = {}
    for column in ("name", "shapes", "dtypes"):
        known = host.known(column)[used]
        texts = np.array([names.id_of(other.names[n]) for n in host[column][used][known].tolist()])
        columns[column] = np.zeros(len(used), np.int32)
        columns[column][known], missing[column] = texts, ~known
    del missing["name"]
    for column in ("start_ns", "duration_ns", "kind"):
        columns[column] = host[column][used]
    columns["thread"] = np.zeros(len(used), np.int32)
    place = np.full(len(host) + 1, len(used), np.intp)
    place[used] = np.arange(len(used))
    joined = replace(
        trace,
        names=names.freeze(),
        captured_ops=table("host_ops", columns, missing),
        captures=tuple(GraphCapture(one.kinds, place[one.operators]) for one in captures),
    )
    count = int((_from_elsewhere(joined) < len(used)).sum())
    return (joined, count) if count else (trace, 0)


def _captures(trace: Trace) -> Iterator[_Capture]:
    calls, host, ops = trace.api_calls, trace.host_ops, trace.device_ops
    if calls is None or host is None or ops is None or not len(host):
        return
    begins = np.flatnonzero(rows_named(trace, calls, lambda name: "BeginCapture" in name))
    ends = np.flatnonzero(rows_named(trace, calls, lambda name: "EndCapture" in name))
    if not len(begins) or len(begins) > _MOST_CAPTURES:
        return
    ran = np.zeros(len(calls) + 1, np.bool_)
    ran[ops.filled("api_call", len(calls))] = True
    silent = np.flatnonzero(np.isin(calls["kind"], list(_KINDS)) & ~ran[:-1])
    silent = silent[np.argsort(calls["start_ns"][silent], kind="stable")]
    operator = np.append(nearest(parents(host), host["kind"] == HostKind.OPERATOR), len(host))
    names = np.append(host["name"].astype(np.int64), -1)
    for begin in begins.tolist():
        later = ends[calls["start_ns"][ends] >= calls.end_ns[begin]]
        later = later[calls["thread"][later] == calls["thread"][begin]]
        if not len(later):
            continue
        end_ns = int(calls["start_ns"][later].min())
        times = calls["start_ns"][silent]
        rows = silent[(times >= calls.end_ns[begin]) & (times < end_ns)]
        around = operator[calls.filled("host_op", len(host))[rows]]
        kinds = np.array([_KINDS[ApiKind(k)] for k in calls["kind"][rows].tolist()], np.uint8)
        yield _Capture(end_ns, kinds, around, names[around])


def _replays(ops: Table, calls: Table) -> Iterator[tuple[int, Rows]]:
    """Each launch of a graph with the operations of its replay, in the order of the capture."""
    launch = ops.filled("api_call", len(calls))
    replayed = np.append(calls["kind"] == ApiKind.GRAPH_LAUNCH, False)[launch]
    rows = np.flatnonzero(replayed)
    nodes = ops.known("graph_node")
    order = np.where(nodes, ops["graph_node"], ops["start_ns"])[rows]
    rows = rows[np.lexsort((order, launch[rows]))]
    edges = np.flatnonzero(np.diff(launch[rows])) + 1
    for mine in np.split(rows, edges) if len(rows) else ():
        if nodes[mine].all() or (
            not nodes[mine].any() and len(np.unique(ops["stream"][mine])) == 1
        ):
            yield int(launch[mine[0]]), mine


def _kinds(kinds: Codes) -> Codes:
    """Kernels and collectives are launched alike; copies and memsets have other calls."""
    return np.where(kinds == DeviceKind.COLLECTIVE, DeviceKind.KERNEL, kinds).astype(np.uint8)


def _fitting(captures: list[_Capture], kinds: Codes, began_ns: int) -> _Capture | None:
    fits = [c for c in captures if c.end_ns <= began_ns and np.array_equal(c.kinds, kinds)]
    alike = fits and all(np.array_equal(c.names, fits[0].names) for c in fits[1:])
    return max(fits, key=lambda c: c.end_ns) if alike else None
