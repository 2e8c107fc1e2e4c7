"""What the host did, seen through hand-overs between threads.

``backward()`` runs on a thread of its own while its caller waits, and the other way round that
thread sleeps while the caller runs the forward pass. So where one of the two does nothing, the
other one's row tells what the host was doing.
"""

import numpy as np

from pinchpoint.analysis.attribution import backward_nodes
from pinchpoint.analysis.gap_kinds import GapKind
from pinchpoint.analysis.host_activity import activity
from pinchpoint.analysis.host_timeline import HostPieces, look_up, timelines
from pinchpoint.analysis.launches import NOBODY, issued, main_thread
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Ints

_PASSIVE = (GapKind.UNRECORDED, GapKind.AUTOGRAD)


def host_did(trace: Trace, thread: Ints, start: Ints, end: Ints) -> HostPieces:
    """Who was active in each span ``[start, end)`` of a thread; pieces fill the spans.

    ``asked`` of the answer are positions of the spans; spans without length have no piece.
    """
    lines = timelines(trace)
    parts = []
    for one in np.unique(thread).tolist():
        mine = np.flatnonzero((thread == one) & (end > start))
        found = look_up(lines.get(one), start[mine], end[mine])
        other = _partner(trace, one)
        if other != NOBODY:
            found = _seen_through(trace, found, other)
        parts.append(HostPieces(mine[found.asked], found.start_ns, found.end_ns, found.row))
    if not parts:
        none = np.zeros(0, np.int64)
        return HostPieces(none, none, none, none)
    if len(parts) == 1 and np.all(parts[0].start_ns[1:] >= parts[0].start_ns[:-1]):
        return parts[0]
    columns = zip(*((p.asked, p.start_ns, p.end_ns, p.row) for p in parts), strict=True)
    asked, starts, ends, row = (np.concatenate(c) for c in columns)
    order = np.argsort(starts, kind="stable")
    return HostPieces(asked[order], starts[order], ends[order], row[order])


def _partner(trace: Trace, thread: int) -> int:
    main = main_thread(trace)
    return main if thread != main else _second_thread(trace)


@once_per_trace
def _second_thread(trace: Trace) -> int:
    """The thread that works while the main one waits, or NOBODY.

    The one with most nodes of the backward pass, else the one with most launches.
    """
    by, main, host = issued(trace), main_thread(trace), trace.host_ops
    if host is not None:
        nodes = host["thread"][backward_nodes(trace) & (host["thread"] != main)]
        if len(nodes):
            return int(np.bincount(nodes).argmax())
    others = by.thread[by.linked & (by.thread != main)]
    return int(np.bincount(others).argmax()) if len(others) else NOBODY


def _seen_through(trace: Trace, found: HostPieces, other: int) -> HostPieces:
    code = activity(trace)
    passive = np.isin(code[found.row], _PASSIVE)
    waiting, keep = np.flatnonzero(passive), np.flatnonzero(~passive)
    if not len(waiting):
        return found
    inner = look_up(timelines(trace).get(other), found.start_ns[waiting], found.end_ns[waiting])
    outer = found.row[waiting][inner.asked]
    active = ~np.isin(code[inner.row], _PASSIVE)
    # Both passive: the one that is known to wait in backward() says more than nothing at all.
    row = np.where(active | (code[outer] == GapKind.UNRECORDED), inner.row, outer)
    return HostPieces(
        np.concatenate((found.asked[keep], found.asked[waiting][inner.asked])),
        np.concatenate((found.start_ns[keep], inner.start_ns)),
        np.concatenate((found.end_ns[keep], inner.end_ns)),
        np.concatenate((found.row[keep], row)),
    )
