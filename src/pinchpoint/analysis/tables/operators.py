"""Where operators spend time, on the host and on the device: torch's ``key_averages`` and more.

*Self* is what an operator does itself; *total* includes what it calls. Host self time leaves out
calls to the driver, which are a column of their own, and the profiler's own work. Device times are
sums of durations, so that operators on parallel streams each bear their cost. Unlike in torch, a
recursive call is not counted again in its caller's total, and device work that was launched inside
a ``record_function`` range counts as the range's.
"""

import numpy as np

from pinchpoint.analysis.host.ancestry import (
    above,
    nearest,
    numbered,
    outermost,
    parents,
    subtree_sums,
)
from pinchpoint.analysis.host.attribution import launched_count, launched_ns
from pinchpoint.analysis.host.frames import owners
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Table, Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows

# ------------------------------------------------------------------------------------------------
# The profiler's own work inside the operators that it interrupted.
#
# Recorders write such work (activity buffers, module loading) on a thread of its own, so whom it
# held up has to be found by time.


def overhead_ns(trace: Trace, wanted: Mask) -> Ints:
    """Time that the profiler spent inside each wanted row of ``host_ops`` itself.

    Of the rows around it, on any thread, the one that began last was running. What lies inside a
    runtime call is left out: it is part of that call, not of the operator's own time.
    """
    host = trace.host_ops
    assert host is not None
    total = np.zeros(len(host), np.int64)
    rows = np.flatnonzero(host["kind"] == HostKind.OVERHEAD)
    rows = rows[~_inside_calls(trace, host, rows)]
    if not len(rows):
        return total
    none = len(host)
    best = np.full(len(rows), none)
    began = np.full(len(rows), np.iinfo(np.int64).min)
    for thread in np.unique(host["thread"][wanted]):
        owner = _running(host, np.flatnonzero(wanted & (host["thread"] == thread)), rows)
        found = np.flatnonzero(owner < none)
        later = found[host["start_ns"][owner[found]] > began[found]]
        best[later], began[later] = owner[later], host["start_ns"][owner[later]]
    known = best < none
    np.add.at(total, best[known], host["duration_ns"][rows[known]])
    return total


def _running(host: Table, candidates: Rows, rows: Rows) -> Rows:
    """The innermost candidate of one thread around each row; ``len(host)`` if none."""
    none = len(host)
    parent = np.append(parents(host), none)
    end = np.append(host.end_ns, np.iinfo(np.int64).max)
    is_candidate = np.zeros(none + 1, np.bool_)
    is_candidate[candidates] = True
    before = np.searchsorted(host["start_ns"][candidates], host["start_ns"][rows], "right")
    owner = np.where(before > 0, candidates[np.maximum(before - 1, 0)], none)
    while True:
        wrong = (owner < none) & ((end[owner] < host.end_ns[rows]) | ~is_candidate[owner])
        if not wrong.any():
            return owner
        owner[wrong] = parent[owner[wrong]]


def _inside_calls(trace: Trace, host: Table, rows: Rows) -> Mask:
    calls = trace.api_calls
    if calls is None or not len(calls):
        return np.zeros(len(rows), np.bool_)
    reach = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(calls.end_ns)))
    before = np.searchsorted(calls["start_ns"], host["start_ns"][rows], "right")
    inside: Mask = reach[before] >= host.end_ns[rows]
    return inside


# ------------------------------------------------------------------------------------------------
# Where operators spend time, on the host and on the device: torch's ``key_averages`` and more.


_OPERATORS = (HostKind.OPERATOR, HostKind.ANNOTATION, HostKind.COMPILE)


@dataclass(frozen=True)
class OperatorRow:
    """All calls of one operator, or of one operator with the same input shapes."""

    name: str
    kind: HostKind
    shapes: str | None  # the recorded text; None unless asked for and recorded
    calls: int  # a call from within a call of the same name is part of that one
    host_total_ns: int
    host_self_ns: int
    host_api_ns: int  # in driver and runtime calls made by the operator itself
    device_total_ns: int
    device_self_ns: int
    device_ops: int  # launched by the operator itself
    allocated_bytes: int | None = None  # while its calls ran; None without recorded memory


@dataclass(frozen=True)
class Operators:
    """The operator table: most device time first, then most host time."""

    rows: tuple[OperatorRow, ...]
    device_ns: int  # sum of durations of all device operations counted, traced to a row or not
    unattributed_device_ns: int  # of operations that the file ties to no operator

    def device_share(self, row: OperatorRow) -> float | None:
        """Self device time as a share of all; None without device time."""
        return row.device_self_ns / self.device_ns if self.device_ns else None


def operators(trace: Trace, rows: Mask | None = None, *, by_shapes: bool = False) -> Operators:
    """The table over the calls in the mask ``rows`` of ``host_ops`` (default: all)."""
    host = trace.host_ops
    if host is None or not len(host):
        return Operators((), *_device_totals(trace, None))
    counted = np.isin(host["kind"], _OPERATORS) & (owners(trace) == 0)
    tree = _Tree.of(trace, host, counted)
    if rows is not None:
        counted = counted & rows
    calls = np.flatnonzero(counted)
    key, members = _groups(host, calls, by_shapes)
    outer = outermost(
        key * (int(host["thread"].max()) + 1) + host["thread"][calls],
        host["start_ns"][calls],
        host.end_ns[calls],
    )
    sums = {
        "calls": _sum(key, outer.astype(np.int64)),
        "host_total_ns": _sum(key, np.where(outer, host["duration_ns"][calls], 0)),
        "host_self_ns": np.maximum(_sum(key, tree.host_self_ns[calls]), 0),
        "host_api_ns": _sum(key, tree.host_api_ns[calls]),
        "device_total_ns": _sum(key, np.where(outer, tree.device_total_ns[calls], 0)),
        "device_self_ns": _sum(key, tree.device_self_ns[calls]),
        "device_ops": _sum(key, tree.device_ops[calls]),
    }
    allocated = _allocated(trace, host, calls)
    if allocated is not None:
        sums["allocated_bytes"] = _sum(key, np.where(outer, allocated, 0))
    order = np.lexsort((-sums["host_self_ns"], -sums["device_self_ns"]))
    table = tuple(_row(trace, host, int(members[g]), by_shapes, sums, g) for g in order)
    return Operators(table, *_device_totals(trace, rows))


def _allocated(trace: Trace, host: Table, calls: Rows) -> Ints | None:
    """Device memory that was asked for on the thread of each call while it ran."""
    events = trace.allocations
    if events is None or not events.known("device").any():
        return None
    asked = events.known("device") & (events["bytes"] > 0)
    total = np.zeros(len(calls), np.int64)
    for thread in np.unique(host["thread"][calls]).tolist():
        mine, own = asked & (events["thread"] == thread), host["thread"][calls] == thread
        times = events["time_ns"][mine]
        before = np.concatenate(([0], np.cumsum(events["bytes"][mine])))
        rows = calls[own]
        first = np.searchsorted(times, host["start_ns"][rows])
        total[own] = before[np.searchsorted(times, host.end_ns[rows], "right")] - before[first]
    return total


@dataclass(frozen=True)
class _Tree:
    """Per host row; zero for rows that are no operators."""

    host_self_ns: Ints
    host_api_ns: Ints
    device_self_ns: Ints
    device_total_ns: Ints
    device_ops: Ints

    @classmethod
    def of(cls, trace: Trace, host: Table, counted: Mask) -> "_Tree":
        none = len(host)
        parent = parents(host)
        owner = nearest(parent, counted)  # frames of Python between operators pass theirs on
        outer = above(parent, counted)
        held = np.where(counted, outer, none)
        api = _moved(_api_ns(trace, none), owner)
        device = _moved(launched_ns(trace), owner)
        inside = np.zeros(none + 1, np.int64)
        np.add.at(inside, held, host["duration_ns"])
        recording = overhead_ns(trace, counted)
        host_self = np.where(counted, host["duration_ns"] - inside[:-1] - api - recording, 0)
        return cls(
            host_self,
            api,
            device,
            subtree_sums(held, device),
            _moved(launched_count(trace), owner),
        )


def _moved(values: Ints, owner: Rows) -> Ints:
    """Give each row's value to its owner; what nobody owns is dropped."""
    total = np.zeros(len(values) + 1, np.int64)
    np.add.at(total, owner, values)
    return total[:-1]


def _api_ns(trace: Trace, rows: int) -> Ints:
    total = np.zeros(rows, np.int64)
    if trace.api_calls is not None:
        linked = trace.api_calls.known("host_op")
        callers, lasted = trace.api_calls["host_op"], trace.api_calls["duration_ns"]
        np.add.at(total, callers[linked], lasted[linked])
    return total


def _groups(host: Table, calls: Rows, by_shapes: bool) -> tuple[Rows, Rows]:
    """A group number for each call, and one member of each group."""
    key = host["name"].astype(np.int64)[calls] * (max(HostKind) + 1) + host["kind"][calls]
    if by_shapes:
        shapes = host.filled("shapes", -1).astype(np.int64)[calls] + 1
        key = key * (int(shapes.max(initial=0)) + 1) + shapes
    group = numbered(key)
    member = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    member[group] = calls
    return group, member


def _sum(group: Rows, values: Ints) -> Ints:
    total = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    np.add.at(total, group, values)
    return total


def _row(
    trace: Trace, host: Table, member: int, by_shapes: bool, sums: dict[str, Ints], group: int
) -> OperatorRow:
    return OperatorRow(
        name=trace.names[host["name"][member]],
        kind=HostKind(host["kind"][member]),
        shapes=trace.text(host, "shapes", member) if by_shapes else None,
        **{column: int(values[group]) for column, values in sums.items()},
    )


def _device_totals(trace: Trace, rows: Mask | None) -> tuple[int, int]:
    ops = trace.device_ops
    if ops is None:
        return 0, 0
    linked, lasted = ops.known("host_op"), ops["duration_ns"]
    if rows is not None:
        linked = linked & np.append(rows, False)[ops.filled("host_op", len(rows))]
        return int(lasted[linked].sum()), 0
    return int(lasted.sum()), int(lasted[~linked].sum())
