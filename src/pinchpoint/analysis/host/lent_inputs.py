"""A window without inputs, with those that another window of the same loop recorded.

Recording shapes slows the host, and a run on a CPU may be disturbed in one window and not in the
other. So what an operator works on is read from the one, and what it takes from the other: the n-th
call of an operator in a step of both, where both call it equally often in a step.
"""

from dataclasses import replace

import numpy as np

from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask, Rows
from pinchpoint.trace.table import table

_INPUTS = ("shapes", "dtypes", "strides", "values")


@once_per_trace
def with_inputs(trace: Trace) -> Trace:
    """The trace with inputs of its operators, where the run has a window that knows them.

    The trace itself where it knows them, has a device, or steps of either window are not marked.
    """
    named = trace.run.named if trace.run else None
    if named is None or not computes_on_cpu(trace) or named.host_ops is None:
        return trace
    here, there = _calls(trace), _calls(named)
    assert trace.host_ops is not None
    if here is None or there is None or trace.host_ops.known("shapes").any():
        return trace
    rows, source = _same_calls(here, there)
    if not named.host_ops.known("shapes")[source].any():
        return trace
    columns, missing = _lent(trace, named.host_ops, rows, source)
    lent = table("host_ops", columns, missing)
    return replace(trace, host_ops=lent, names=(*trace.names, *named.names))


@dataclass(frozen=True, eq=False)
class _Calls:
    """Operators in marked steps; arrays have one element a call."""

    rows: Rows  # of host_ops
    name: tuple[str, ...]
    step: Ints
    nth: Ints  # of this operator in its step
    count: Ints  # of calls of this operator in its step


def _calls(trace: Trace) -> _Calls | None:
    host, marks = trace.host_ops, trace.steps
    if host is None or marks is None or not len(marks):
        return None
    step = np.searchsorted(marks["start_ns"], host["start_ns"], "right") - 1
    inside = (step >= 0) & (host["start_ns"] < marks.end_ns[step])
    rows = np.flatnonzero(inside & (host["kind"] == HostKind.OPERATOR))
    name, step = host["name"][rows].astype(np.int64), step[rows].astype(np.int64)
    order = np.lexsort((name, step))  # calls of one operator and step stay in order of time
    first = np.ones(len(rows), np.bool_)
    first[1:] = (np.diff(name[order]) != 0) | (np.diff(step[order]) != 0)
    begins = np.flatnonzero(first)
    size = np.diff(np.append(begins, len(rows)))
    nth, count = np.empty((2, len(rows)), np.int64)
    nth[order] = np.arange(len(rows)) - np.repeat(begins, size)
    count[order] = np.repeat(size, size)
    return _Calls(rows, tuple(trace.names[n] for n in name.tolist()), step, nth, count)


def _same_calls(here: _Calls, there: _Calls) -> tuple[Rows, Rows]:
    """Rows that have the same place in the fullest step of the other window, and those there."""
    fullest = int(np.bincount(there.step).argmax()) if len(there.step) else 0
    known: dict[tuple[str, int, int], int] = {}
    for at in np.flatnonzero(there.step == fullest).tolist():
        known[there.name[at], int(there.nth[at]), int(there.count[at])] = int(there.rows[at])
    place = zip(here.name, here.nth.tolist(), here.count.tolist(), strict=True)
    source = np.array([known.get(one, -1) for one in place], np.intp)
    found: Mask = source >= 0
    return here.rows[found], source[found]


def _lent(
    trace: Trace, there: Table, rows: Rows, source: Rows
) -> tuple[dict[str, np.ndarray], dict[str, Mask]]:
    """The columns of ``host_ops`` with inputs of these rows, which name the other's texts."""
    host = trace.host_ops
    assert host is not None
    columns, missing = dict(host.columns), dict(host.missing)
    for column in _INPUTS:
        values = np.zeros(len(host), np.int64)
        none = np.ones(len(host), np.bool_)
        values[rows] = there.filled(column, 0)[source] + len(trace.names)
        none[rows] = ~there.known(column)[source]
        columns[column], missing[column] = values, none
    return columns, missing
