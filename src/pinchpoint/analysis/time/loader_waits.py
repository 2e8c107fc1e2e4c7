"""When the thread of the steps waits for a batch that worker processes of a loader prepare."""

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.launches import main_thread
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Mask
from pinchpoint.trace.intervals import NONE, Intervals, covered_before, flatten
from pinchpoint.trace.names import rows_named

LEAST_BATCH_WAIT_NS = 500_000  # taking a ready batch from a queue costs less, profiled
LEAST_BLOCK_NS = 50_000  # taking a lock that is free costs a few µs
_TAKING = regex(r"enumerate\(Data\w+\)#.*MultiProcessing.*__next__")
# C functions in which a thread sleeps until another thread or process has something for it.
_BLOCKING = regex(
    r"<built-in (method (acquire|__enter__|poll|select|recv\w*|wait) of "
    r"|function (select|read|poll)>)"
)


@once_per_trace
def loader_waits(trace: Trace) -> Intervals:
    """Time on the thread of the steps in which it waits for worker processes.

    Python frames inside ``next()`` tell waiting from the work that the thread does there itself,
    such as drawing the indices of the next batch: that is host time, and recording makes it longer.
    Without frames all of it counts as waiting.
    """
    host = trace.host_ops
    if host is None or not len(host):
        return NONE
    taking = rows_named(trace, host, lambda name: _TAKING.search(name) is not None)
    taking &= host["thread"] == main_thread(trace)
    if not taking.any():
        return NONE
    blocked = _blocked_ns(trace, taking)
    around = nearest(parents(host), taking & (blocked > LEAST_BATCH_WAIT_NS))
    framed = _framed(trace, taking)
    rows = taking & ~framed & (blocked > LEAST_BATCH_WAIT_NS)
    rows |= _blocking(trace) & (around < len(host)) & (host["duration_ns"] >= LEAST_BLOCK_NS)
    return flatten(host["start_ns"][rows], host.end_ns[rows])


def taking_name(trace: Trace) -> str | None:
    """The name of the rows that take a batch from worker processes; None without any."""
    return next((name for name in trace.names if _TAKING.search(name)), None)


def waited_in(trace: Trace, start_ns: Ints, end_ns: Ints) -> Ints:
    """Time of such waits in each span."""
    spans = loader_waits(trace)
    if not len(spans.start):
        return np.zeros(len(start_ns), np.int64)
    waited: Ints = covered_before(spans, end_ns) - covered_before(spans, start_ns)
    return waited


def _blocked_ns(trace: Trace, taking: Mask) -> Ints:
    """Of each row that takes a batch, the time it blocks; all of it where no frame is inside."""
    host = trace.host_ops
    assert host is not None
    inside = np.append(nearest(parents(host), taking), len(host))
    rows = np.flatnonzero(_blocking(trace))
    blocked = np.zeros(len(host) + 1, np.int64)
    np.add.at(blocked, inside[rows], host["duration_ns"][rows])
    found: Ints = np.where(_framed(trace, taking), blocked[:-1], host["duration_ns"])
    return found


def _framed(trace: Trace, taking: Mask) -> Mask:
    """Rows that take a batch and have Python frames inside."""
    host = trace.host_ops
    assert host is not None
    frames = np.flatnonzero(host["kind"] == HostKind.PYTHON)
    has = np.zeros(len(host) + 1, np.bool_)
    has[nearest(parents(host), taking)[frames]] = True
    found: Mask = has[:-1] & taking
    return found


def _blocking(trace: Trace) -> Mask:
    host = trace.host_ops
    assert host is not None
    return rows_named(trace, host, lambda name: _BLOCKING.match(name) is not None)
