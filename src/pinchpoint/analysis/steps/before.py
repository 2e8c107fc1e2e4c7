"""What was recorded before that which is judged: how a program starts, where it takes most.

Steps are judged from the second on, and without steps the recording from the first operation of the
device on. What a program does until then, it does once; where that is most of the recording, a
reader who looks for it should know.
"""

from typing import NamedTuple

import numpy as np

from pinchpoint.analysis.steps.steps import steps
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints

LEAST_TIMES = 4  # what is judged: four fifths of the recording are something else
LEAST_PART_RATIO = 0.1  # of that time: shorter calls do not say where it went
LITTLE_RATIO = 0.1  # of a call: what calls within it may take while it is that which takes long
NEARLY_RATIO = 0.9  # of a call: one within it that lasts as long says more of where it went
_SHOWN = (HostKind.OPERATOR, HostKind.ANNOTATION, HostKind.COMPILE)  # stacks begin long before


@dataclass(frozen=True)
class Before:
    """How long, and the longest call in it that takes its time itself; "" where none is long."""

    duration_ns: int
    longest: str
    longest_ns: int


@once_per_trace
def before_what_is_judged(trace: Trace) -> Before | None:
    """None where it is not most of the recording."""
    found = steps(trace)
    rows = np.flatnonzero(found.complete if found.how != "none" else found.typical)
    shown = _shown(trace)
    if not len(rows) or not len(shown.start_ns):
        return None
    begins = int(found.start_ns[rows[0]])
    lasting_ns = begins - int(shown.start_ns.min())
    if lasting_ns < LEAST_TIMES * (int(found.end_ns[rows[-1]]) - begins):
        return None
    longest = _longest(shown, begins, round(LEAST_PART_RATIO * lasting_ns))
    if longest is None:
        return Before(lasting_ns, "", 0)
    name, longest_ns = longest
    return Before(lasting_ns, trace.names[name], longest_ns)


class _Calls(NamedTuple):
    """Of the host, by thread and then by beginning."""

    thread: Ints
    start_ns: Ints
    end_ns: Ints
    name: Ints


def _shown(trace: Trace) -> _Calls:
    host = trace.host_ops
    if host is not None:
        host = host.take(np.isin(host["kind"], _SHOWN))
    tables = [rows for rows in (host, trace.api_calls) if rows is not None and len(rows)]
    none = [np.zeros(0, np.int64)]
    parts = (
        np.concatenate([t["thread"] for t in tables] or none),
        np.concatenate([t["start_ns"] for t in tables] or none),
        np.concatenate([t.end_ns for t in tables] or none),
        np.concatenate([t["name"] for t in tables] or none),
    )
    order = np.lexsort((-parts[2], parts[1], parts[0]))
    return _Calls(*(part[order] for part in parts))


def _longest(shown: _Calls, until_ns: int, least_ns: int) -> tuple[int, int] | None:
    """Name and duration of the longest before that moment which takes its time itself: the calls
    that its thread made within it, and that hold no other, take little of it. Of one in another
    that is hardly longer the inner; None where all are shorter."""
    lasting = shown.end_ns - shown.start_ns
    holds = np.append(
        (shown.thread[1:] == shown.thread[:-1]) & (shown.start_ns[1:] < shown.end_ns[:-1]), False
    )
    chosen = -1
    for row in np.flatnonzero((shown.start_ns < until_ns) & (lasting >= least_ns)).tolist():
        within = ~holds & (shown.thread == shown.thread[row])
        within &= (shown.start_ns >= shown.start_ns[row]) & (shown.end_ns <= shown.end_ns[row])
        if holds[row] and lasting[within].sum() > LITTLE_RATIO * lasting[row]:
            continue
        in_it = chosen >= 0 and shown.end_ns[row] <= shown.end_ns[chosen]
        if chosen < 0 or lasting[row] > (NEARLY_RATIO if in_it else 1) * lasting[chosen]:
            chosen = row
    return None if chosen < 0 else (int(shown.name[chosen]), int(lasting[chosen]))
