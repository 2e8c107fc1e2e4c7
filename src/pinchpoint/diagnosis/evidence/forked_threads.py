"""Threads that a call starts and waits for: its own parallel computation, and no wait to remove.

``cKDTree.query(workers=8)`` of SciPy and others start threads, which compute, and join them before
they give their answer. The thread that called them waits meanwhile; what it waits for is the work.
"""

from typing import Any

import numpy as np

from pinchpoint.analysis.host.source_lines import places
from pinchpoint.analysis.host.timeline import host_rows
from pinchpoint.analysis.run import run_facts
from pinchpoint.analysis.steps.in_steps import judged_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.thread_of_steps import thread_of_steps
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.names import rows_named

_STARTS = regex(r"threading\.py\(\d+\): start$")
_JOINS = regex(r"threading\.py\(\d+\): join$")


def waits_for_its_own_threads(trace: Trace, row: int, waits_ns: int) -> bool:
    """Whether a wait of ``host_rows`` is in a join of threads that the same function starts in each
    step, while as much is computed on other threads as it takes."""
    rows, frame = host_rows(trace), places(trace).frame
    joins = _named(trace, _JOINS)
    up = row
    while up >= 0 and up not in joins:
        up = int(rows.parent[up])
    if up < 0:
        return False
    starts = _named(trace, _STARTS)
    mine = [at for at in starts if frame[at] == frame[up]]
    if not 0 < len(judged_steps(trace)) <= len(mine):
        return False
    return computed_by_others_ns(trace) >= waits_ns


def computed_by_others_ns(trace: Trace) -> float:
    """Time on cores of all threads but that of the steps, in one step; 0 where it is not known."""
    facts, samples = run_facts(trace), trace.run.samples if trace.run else None
    thread, step_ns = thread_of_steps(trace), steps(trace).typical_ns
    if samples is None or thread is None or thread.cpu_ns is None:
        return 0.0
    if not samples.seconds or not step_ns:
        return 0.0
    own_ns = thread.cpu_ns / (samples.seconds * 1e9) * step_ns
    return max((facts.user_ns_per_step or 0.0) - own_ns, 0.0)


def _named(trace: Trace, pattern: Any) -> set[int]:
    host = trace.host_ops
    if host is None:
        return set()
    found: Rows = np.flatnonzero(rows_named(trace, host, lambda n: pattern.search(n) is not None))
    return set(found.tolist())
