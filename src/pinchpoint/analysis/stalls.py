"""Where the launching thread stood still: work that usually takes microseconds took milliseconds.

A thread that has lost its core or the interpreter's lock leaves no event. What shows is an operator
or call, or the way from one to the next, that took a thousand times longer than the same one
elsewhere, while the thread waited for nothing on the device.
"""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.gap_kinds import GapKind
from pinchpoint.analysis.host_activity import activity
from pinchpoint.analysis.host_timeline import NO_ROW, host_rows, look_up, timelines
from pinchpoint.analysis.in_steps import judged_steps
from pinchpoint.analysis.launches import main_thread
from pinchpoint.trace import HostKind, Trace, once_per_trace

Rows = NDArray[np.intp]
Ints = NDArray[np.int64]

# A scheduler's slice is 1 to 4 ms, the interpreter's switch interval 5 ms: work between two events
# of a launching thread takes microseconds.
LEAST_STALL_NS = 1_000_000
_OWN_WORK = (GapKind.DISPATCH, GapKind.PYTHON, GapKind.UNRECORDED, GapKind.GRAPH_LAUNCH)
_WAITS = re.compile(
    r"method (acquire|poll|select|recv\w*|read\w*|wait|join|accept|get) of |function (sleep|select"
    r"|read|waitpid|poll)|(threading|queues?|selectors|connection|subprocess|popen_\w+)\.py"
)


@dataclass(frozen=True, eq=False)
class Stalls:
    """Pieces of the launching thread's time that took too long, in the judged steps."""

    rows: Rows  # of host_ops: the row that was open
    end_ns: Ints
    excess_ns: Ints  # how much longer than usual, up to ``end_ns``


@once_per_trace
def stalls(trace: Trace) -> Stalls:
    """Stalls of the launching thread in its own work."""
    steps, thread = judged_steps(trace), main_thread(trace)
    line = timelines(trace).get(thread)
    pieces = look_up(line, steps.start_ns, steps.end_ns)
    kind = activity(trace)[pieces.row]
    length = pieces.end_ns - pieces.start_ns
    operators = host_rows(trace).operators
    known = (pieces.row != NO_ROW) & (pieces.row < operators)
    long = np.isin(kind, _OWN_WORK) & (length >= LEAST_STALL_NS) & known
    usual = _usual(pieces.row, length, trace)
    stalled = np.flatnonzero(long & (length > 50 * usual))
    return Stalls(
        pieces.row[stalled].astype(np.intp),
        pieces.end_ns[stalled],
        length[stalled] - usual[stalled],
    )


def _usual(row: Ints, length: Ints, trace: Trace) -> Ints:
    """Median length of the pieces of rows with the same name."""
    names = host_rows(trace).name
    name = np.where(row == NO_ROW, -1, names[row])
    order = np.lexsort((length, name))
    first = np.flatnonzero(np.append(True, name[order][1:] != name[order][:-1]))
    count = np.diff(np.append(first, len(order)))
    median = length[order][first + (count - 1) // 2]
    out = np.empty(len(length), np.int64)
    out[order] = np.repeat(median, count)
    return out


def busy_python_threads(trace: Trace, least_ratio: float) -> list[int]:
    """Other threads that run Python for at least this share of the judged steps."""
    host, steps = trace.host_ops, judged_steps(trace)
    if host is None or not len(steps):
        return []
    waits = np.array([_WAITS.search(n) is not None for n in trace.names])
    python = host["kind"] == HostKind.PYTHON
    window = int((steps.end_ns - steps.start_ns).sum())
    busy = []
    for thread, line in timelines(trace).items():
        if thread == main_thread(trace) or not (python & (host["thread"] == thread)).any():
            continue
        pieces = look_up(line, steps.start_ns, steps.end_ns)
        running = (pieces.row != NO_ROW) & (pieces.row < len(host))
        running &= ~waits[host["name"][np.where(running, pieces.row, 0)]]
        running &= python[np.where(running, pieces.row, 0)]
        if (pieces.end_ns - pieces.start_ns)[running].sum() >= least_ratio * window:
            busy.append(thread)
    return busy
