"""The phases of a step, where the ranges that a program marks are all that was recorded."""

import numpy as np

from pinchpoint.analysis.host.launches import main_thread
from pinchpoint.analysis.steps.in_steps import per_step, rows_in_steps
from pinchpoint.analysis.steps.module_nesting import outermost
from pinchpoint.trace import HostKind, Trace


def phases(trace: Trace) -> tuple[tuple[str, float], ...]:
    """Name and nanoseconds a step of the outer ranges on the main thread, longest first."""
    host = trace.host_ops
    if host is None or not len(host):
        return ()
    mine = (host["kind"] == HostKind.ANNOTATION) & (host["thread"] == main_thread(trace))
    rows = outermost(host.take(mine & rows_in_steps(trace, host)))
    if not len(rows):
        return ()
    total = np.bincount(rows["name"], weights=rows["duration_ns"])
    longest = np.argsort(-total, kind="stable")
    return tuple((trace.names[n], per_step(trace, float(total[n]))) for n in longest if total[n])
