"""The profiler's own work inside the operators that it interrupted.

Recorders write such work (activity buffers, module loading) on a thread of its own, so whom it
held up has to be found by time.
"""

import numpy as np

from pinchpoint.analysis.ancestry import parents
from pinchpoint.trace import HostKind, Table, Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows


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
