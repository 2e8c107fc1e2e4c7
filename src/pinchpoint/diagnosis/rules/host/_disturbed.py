"""What operators cost on a thread that is no longer disturbed.

A thread that loses its core or the interpreter's lock again and again also runs slowly between
those stalls: it wakes up with cold caches, for a moment. Once it is left alone, its operators cost
what eager operators cost.
"""

import numpy as np

from pinchpoint.analysis.host.ancestry import parents, within_rows
from pinchpoint.analysis.replay import Change, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, rows_in_steps
from pinchpoint.analysis.time.stalls import Stalls, launching_threads
from pinchpoint.diagnosis.evidence.host_spans import outermost
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.names import rows_named

# Host time of a small eager operator with one launch, without the profiler: 8 to 11 µs on the
# hosts of H100s, by the unprofiled times of programs that do nothing else.
EAGER_OPERATOR_NS = 10_000


# After a stall a core fills its caches anew: its own 2 MB at 10 GB/s take 0.2 ms, what Python's
# objects are in beside it a few times that.
COLD_NS = 1_000_000


def undisturbed_operators(
    trace: Trace, held: Stalls, *, only_behind: bool = False
) -> tuple[Change, ...]:
    """Operators of the launching threads at their usual cost; to be applied after the stalls.

    Nothing where they already cost no more than that, or where the trace shows no launches.
    ``only_behind``: only those that a stall is in or shortly before. What disturbs a thread for
    long and seldom leaves it alone in between, and what operators cost there is their own cost.
    """
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None:
        return ()
    calls = _operator_calls(trace) & np.isin(host["thread"], launching_threads(trace))
    wanted = calls & rows_in_steps(trace, host)
    if only_behind:
        wanted &= _behind(trace, held)
    rows = np.flatnonzero(outermost(trace, wanted))
    mine = within_rows(parents(host), rows)[ops.filled("host_op", len(host))]
    launches = int(np.count_nonzero(device_ops_in_steps(trace) & (mine | (not only_behind))))
    if not launches:
        return ()
    inside = int(held.excess_ns[calls[held.rows]].sum())
    left = int(host["duration_ns"][rows].sum()) - inside
    factor = EAGER_OPERATOR_NS * launches / max(left, 1)
    return (ScaleHostSpans(rows, factor),) if factor < 1 else ()


def _behind(trace: Trace, held: Stalls) -> Mask:
    """Host rows that a stall lies in, or that begin shortly after one."""
    host = trace.host_ops
    assert host is not None
    ends, start = np.sort(held.end_ns), host["start_ns"]
    before = np.searchsorted(ends, start, "right") - 1
    cold = (before >= 0) & (start - ends[np.maximum(before, 0)] <= COLD_NS) if len(ends) else False
    during = np.searchsorted(ends, host.end_ns, "right") - 1 > before
    found: Mask = cold | during
    return found


def _operator_calls(trace: Trace) -> Mask:
    """Operators, and the built-in functions through which Python calls them."""
    host = trace.host_ops
    assert host is not None
    operators: Mask = host["kind"] == HostKind.OPERATOR
    built_in = rows_named(trace, host, lambda name: name.startswith("<built-in"))
    above = parents(host)[operators]
    callers = np.zeros(len(host), np.bool_)
    callers[above[above < len(host)]] = True
    calls: Mask = operators | (callers & built_in)
    return calls
