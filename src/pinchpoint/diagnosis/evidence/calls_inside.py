"""A step without the calls of an operator that others make it do anew."""

from collections.abc import Callable

import numpy as np

from pinchpoint.analysis.host.ancestry import parents, within
from pinchpoint.analysis.replay import Change, DropSyncs
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.analysis.time.host_waits import host_waits
from pinchpoint.diagnosis.evidence.device_work import without_work
from pinchpoint.diagnosis.evidence.host_spans import named
from pinchpoint.trace import HostKind, Trace


def without_calls_inside(
    trace: Trace, name: str, around: Callable[[str], bool]
) -> tuple[Change, ...] | None:
    """Without the calls of an operator inside those around it, by name: with all that they start
    and wait for. None where most of its time is spent in other calls."""
    ops, host = trace.device_ops, trace.host_ops
    assert ops is not None
    assert host is not None
    parent, operator = parents(host), host["kind"] == HostKind.OPERATOR
    inside = within(parent, operator & named(trace, name.__eq__))
    inner = within(parent, operator & named(trace, around))
    launcher = ops.filled("host_op", len(host)).astype(np.intp)
    rows = np.flatnonzero(device_ops_in_steps(trace) & inside[launcher])
    again = rows[inner[launcher[rows]]]
    took = ops["duration_ns"]
    if 2 * int(took[again].sum()) <= int(took[rows].sum()):
        return None
    waits = host_waits(trace)
    waiting = waits.api_calls[inside[waits.host_op] & inner[waits.host_op]]
    return (*without_work(trace, again), DropSyncs(waiting))
