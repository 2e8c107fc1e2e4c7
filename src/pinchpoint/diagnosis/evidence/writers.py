"""Functions of the program that write logs, files or pictures, with all the work for it."""

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.frames import (
    Owner,
    copies_to_host,
    functions_doing,
    numeric_on_host,
    owners,
)
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.names import rows_named

LOGGING_RATIO = 0.2  # a function that spends this much of its time in writers is there to log
# Of the calls of a function: one that copies a tensor and writes something nearly every time copies
# in order to write.
MOST_CALLS_RATIO = 0.5
_PRINT = "<built-in function print>"  # a line on the screen is no reason to compute


@once_per_trace
def writing(trace: Trace) -> Mask:
    """Rows of ``host_ops`` in which logs, files or pictures are written."""
    host = trace.host_ops
    rows = 0 if host is None else len(host)
    found: Mask = activity(trace)[:rows] == GapKind.LOGGING
    return found


@once_per_trace
def writing_functions(trace: Trace) -> Mask:
    """Rows of ``host_ops``: the program's functions that copy and compute in order to write.

    Most of their time is copying to the host, computing there and writing. And a good part of it
    is writing, or most of their calls copy a tensor and write something to a file or a tracker.
    """
    host = trace.host_ops
    if host is None:
        return np.zeros(0, np.bool_)
    helping = numeric_on_host(trace) | copies_to_host(trace)
    mostly = functions_doing(trace, writing(trace), helping, 0.0)
    recorded = writing(trace) & ~rows_named(trace, host, _PRINT.__eq__)
    both = mostly & _calls_with(trace, recorded) & _calls_with(trace, copies_to_host(trace))
    name = host["name"]
    ratio = np.bincount(name, both) / np.maximum(np.bincount(name, mostly), 1)
    found: Mask = mostly & (ratio >= MOST_CALLS_RATIO)[name]
    return found | functions_doing(trace, writing(trace), helping, LOGGING_RATIO)


def _calls_with(trace: Trace, wanted: Mask) -> Mask:
    """Rows of ``host_ops`` that are the innermost function of the program around a wanted row."""
    host = trace.host_ops
    assert host is not None
    hit = np.zeros(len(host) + 1, np.bool_)
    hit[nearest(parents(host), owners(trace) == Owner.USER)[wanted]] = True
    return hit[:-1]
