"""Device-idle time of the steps, cut into pieces that each have one cause.

A gap ends when an operation starts. If that operation was issued before the gap began, the
device waited for something else than the host. If it was issued late, the gap is what its host
thread was doing instead: each instant goes to the innermost row that was open on the issuing
thread, or, where that thread waited for the autograd thread or was waited for, on the other one.
The rest of the gap, from the launching call on, is the call itself and the start latency.
"""

from dataclasses import replace

import numpy as np

from pinchpoint.analysis.host.attribution import backward_nodes
from pinchpoint.analysis.host.launches import (
    NOBODY,
    WaitingCalls,
    issued,
    main_thread,
    own_work,
    waits,
)
from pinchpoint.analysis.host.timeline import NO_ROW, HostPieces, host_rows, look_up, timelines
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.host_activity import CATCHES_UP, GapKind, activity
from pinchpoint.analysis.time.idle_pieces import IdlePieces, cut, merged, together
from pinchpoint.analysis.time.queue_depth import latest_prompt_start_ns
from pinchpoint.frozen import dataclass
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace import intervals as iv
from pinchpoint.trace.arrays import Codes, Ints, KeptRows, Mask, Rows, distinct

# ------------------------------------------------------------------------------------------------
# What the host did, seen through hand-overs between threads.
#
# ``backward()`` runs on a thread of its own while its caller waits, and the other way round that
# thread sleeps while the caller runs the forward pass. So where one of the two does nothing, the
# other one's row tells what the host was doing.


_PASSIVE = (GapKind.UNRECORDED, GapKind.AUTOGRAD)


def host_did(trace: Trace, thread: Ints, start: Ints, end: Ints) -> HostPieces:
    """Who was active in each span ``[start, end)`` of a thread; pieces fill the spans.

    ``asked`` of the answer are positions of the spans; spans without length have no piece.
    """
    lines = timelines(trace)
    parts = []
    for one in distinct(thread).tolist():
        mine = np.flatnonzero((thread == one) & (end > start))
        found = look_up(lines.get(one), start[mine], end[mine])
        other = _partner(trace, one)
        if other != NOBODY:
            found = _seen_through(trace, found, other)
        asked = mine.astype(np.int32)[found.asked]
        parts.append(HostPieces(asked, found.start_ns, found.end_ns, found.row))
    if not parts:
        none, nobody = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return HostPieces(nobody, none, none, nobody)
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


# ------------------------------------------------------------------------------------------------
# Late time that belongs to an earlier wait of the host.
#
# After a call in which the host waited for a busy device, the host starts with nothing queued.
# Had it not waited, it would have been ahead by the time it waited. So later gaps, in which the
# host was late for no reason of its own, count as *after the synchronisation* up to that time.


def after_syncs(pieces: IdlePieces, found: WaitingCalls) -> IdlePieces:
    """Give late time to the wait before it, first come, up to what the host lost in that wait."""
    late = np.flatnonzero(np.isin(pieces.kind, CATCHES_UP) & ~_issued_in_time(pieces))
    group = np.searchsorted(found.end_ns, pieces.start[late], "right") - 1
    late, group = late[group >= 0], group[group >= 0]
    if not len(late):
        return pieces
    lasting = pieces.end[late] - pieces.start[late]
    wanted = np.bincount(group, weights=lasting, minlength=len(found.end_ns)).astype(np.int64)
    credit, owner = _credits(found, wanted)
    before = np.cumsum(lasting) - lasting
    first = np.searchsorted(group, distinct(group), "left")
    base = np.repeat(before[first], np.diff(np.append(first, len(group))))
    left = np.clip(credit[group] - (before - base), 0, lasting)
    return _split(pieces, late[left > 0], left[left > 0], owner[group[left > 0]])


def _split(pieces: IdlePieces, which: Rows, left: Ints, owner: Rows) -> IdlePieces:
    """The first ``left`` of some pieces becomes AFTER_SYNC, the responsibility of ``owner``."""
    begun = pieces.start[which]
    pieces = cut(pieces, begun + left)
    kind, row = pieces.kind.copy(), pieces.row.copy()
    at = np.searchsorted(pieces.start, begun, "left")
    kind[at] = GapKind.AFTER_SYNC
    row[at] = owner
    return replace(pieces, kind=kind, row=row)


def _issued_in_time(pieces: IdlePieces) -> Mask:
    """Start latency of operations that were queued when the gap began: nobody was late."""
    first = np.ones(len(pieces.gap), np.bool_)
    first[1:] = pieces.gap[1:] != pieces.gap[:-1]
    first &= pieces.kind == GapKind.START_LATENCY
    return first


def _credits(found: WaitingCalls, wanted: Ints) -> tuple[Ints, Rows]:
    """For each wait the time that later gaps may claim, and whose it is.

    What is left of an earlier wait stays available, since a second one right after it (a
    synchronise and then an item) loses nothing more; the larger of the two counts.
    """
    credit, owner = found.lost_ns.tolist(), found.row.tolist()
    asked = wanted.tolist()
    for i in range(1, len(credit)):
        rest = credit[i - 1] - asked[i - 1]
        if rest > credit[i]:
            credit[i], owner[i] = rest, owner[i - 1]
    return np.array(credit, np.int64), np.array(owner, np.int64)


# ------------------------------------------------------------------------------------------------
# Device-idle time of the steps, cut into pieces that each have one cause.


@dataclass(frozen=True, eq=False)
class Gaps:
    """Pieces of idle time, in order of time; arrays of one length.

    They fill the device's idle time inside the step windows exactly and do not overlap.
    """

    step: KeptRows  # position of the step window
    start_ns: Ints
    end_ns: Ints
    kind: Codes  # GapKind
    row: KeptRows  # the responsible one of ``host_rows``, or NO_ROW
    gap: KeptRows  # pieces with the same number are one gap of the device
    ended_by: KeptRows  # row of device_ops that ended the gap, or NO_ROW

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def duration_ns(self) -> Ints:
        """Length of each piece."""
        length: Ints = self.end_ns - self.start_ns
        return length


@once_per_trace
def gaps(trace: Trace) -> Gaps:
    """All idle time of the device inside step windows, with its causes."""
    found = _of_one_window(trace)
    if not _outside_operators_it_waits(trace):
        return found
    waiting = np.where(found.kind == GapKind.PYTHON, GapKind.WAIT, found.kind)
    return replace(found, kind=waiting.astype(np.uint8))


@once_per_trace
def _of_one_window(trace: Trace) -> Gaps:
    """The same by this recording alone, whatever another window of its run shows."""
    windows = steps(trace)
    ops = trace.device_ops
    if ops is None or not len(ops) or not len(windows):
        return _gaps_of_nothing()
    low, high = int(windows.start_ns[0]), int(windows.end_ns[-1])
    own = np.flatnonzero(own_work(trace))
    start, end = ops["start_ns"][own], ops.end_ns[own]
    idle = iv.complement(iv.flatten(start, end), low, high)
    ended_by = _ending(own, start, end, idle.end)
    pieces = _explained(trace, idle, ended_by)
    pieces = _overlaid(trace, pieces)
    pieces = after_syncs(pieces, waits(trace))
    return _by_step(pieces, ended_by, windows.start_ns, windows.end_ns)


# Of idle time outside operators, from which on it is said to be a wait as a whole.
MOSTLY_WAITS_RATIO = 0.8


@once_per_trace
def _outside_operators_it_waits(trace: Trace) -> bool:
    """Whether the window with stacks of the same run shows waits where this one shows no frames."""
    named, host = trace.run.named if trace.run else None, trace.host_ops
    if named is None or host is None or (host["kind"] == HostKind.PYTHON).any():
        return False
    there = _of_one_window(named)
    sums = np.bincount(there.kind, there.duration_ns, max(GapKind) + 1)
    waits_ns, python_ns = sums[GapKind.WAIT], sums[GapKind.PYTHON]
    return bool(waits_ns > 0 and waits_ns >= MOSTLY_WAITS_RATIO * (waits_ns + python_ns))


def _ending(ops: Rows, start: Ints, end: Ints, gap_end: Ints) -> Rows:
    """The one of the device operations that starts where each gap ends, or NO_ROW."""
    lasting = np.flatnonzero(end > start)
    order = lasting[np.argsort(start[lasting], kind="stable")]
    at = np.searchsorted(start[order], gap_end, "left")
    if not len(order):
        return np.full(len(gap_end), NO_ROW, np.int64)
    found = np.minimum(at, len(order) - 1)
    hit = (at < len(order)) & (start[order[found]] == gap_end)
    return np.where(hit, ops[order[found]], NO_ROW)


# Gaps that are explained at a time: of a million pieces, what is worked out on the way would take
# more memory than all that is remembered of the recording.
_AT_A_TIME = 1 << 14


def _explained(trace: Trace, idle: iv.Intervals, ended_by: Rows) -> IdlePieces:
    """Every gap in up to three parts: before the launching call, in it, and after it."""
    parts = []
    for low in range(0, max(len(idle.start), 1), _AT_A_TIME):
        some = slice(low, low + _AT_A_TIME)
        few = iv.Intervals(idle.start[some], idle.end[some])
        parts.append(_explained_at_once(trace, few, ended_by[some], low))
    if len(parts) == 1:
        return parts[0]
    columns = ([getattr(p, name) for p in parts] for name in IdlePieces.__annotations__)
    return IdlePieces(*(np.concatenate(c) for c in columns))


def _explained_at_once(trace: Trace, idle: iv.Intervals, ended_by: Rows, first: int) -> IdlePieces:
    """The same of some gaps, of which ``first`` is the number of the first."""
    code = activity(trace)
    call, thread, issue, done = _launching(trace, idle, ended_by)
    gap = np.arange(first, first + len(idle.start), dtype=np.int32)
    did = host_did(trace, thread, idle.start, issue)
    before = IdlePieces(gap[did.asked], did.start_ns, did.end_ns, code[did.row], did.row)
    during = IdlePieces(gap, issue, done, code[call], call)
    prompt = latest_prompt_start_ns(trace)
    late = np.where(idle.end - done > prompt, GapKind.DEPENDENCY, GapKind.START_LATENCY)
    after = IdlePieces(gap, done, idle.end, late.astype(np.uint8), call)
    return together(before, during, after)


def _launching(
    trace: Trace, idle: iv.Intervals, ended_by: Rows
) -> tuple[KeptRows, Ints, Ints, Ints]:
    """The call that ended each gap, its thread, and the part of the gap that it took."""
    by = issued(trace)
    linked = ended_by != NO_ROW
    linked &= by.linked[ended_by]
    call = np.where(linked, by.call[ended_by] + host_rows(trace).operators, NO_ROW)
    thread = np.where(linked, by.thread[ended_by], main_thread(trace))
    # Without a call there is no telling when the operation was issued: the host explains it all.
    issue = np.clip(np.where(linked, by.start_ns[ended_by], idle.end), idle.start, idle.end)
    done = np.clip(np.where(linked, by.end_ns[ended_by], idle.end), issue, idle.end)
    return call.astype(np.int32), thread, issue, done


def _overlaid(trace: Trace, pieces: IdlePieces) -> IdlePieces:
    """Time in which the profiler or the driver stopped the process, whatever was open then."""
    host = trace.host_ops
    if host is None:
        return pieces
    rows = np.flatnonzero(host["kind"] == HostKind.OVERHEAD)
    which = {name: _kind_of_overhead(trace.names[name]) for name in distinct(host["name"][rows])}
    for kind in (GapKind.PROFILER, GapKind.CODE_LOAD):
        own = rows[[which[name] == kind for name in host["name"][rows]]] if len(rows) else rows
        stopped = iv.flatten(host["start_ns"][own], host.end_ns[own])
        if not len(stopped.start):
            continue
        pieces = cut(pieces, np.concatenate((stopped.start, stopped.end)))
        at = np.searchsorted(stopped.start, pieces.start, "right") - 1
        inside = (at >= 0) & (pieces.end <= stopped.end[at])
        pieces = replace(pieces, kind=np.where(inside, kind, pieces.kind).astype(np.uint8))
    return pieces


def _kind_of_overhead(name: str) -> GapKind | None:
    """CUPTI's words: buffers are its own work, and loading is the driver's."""
    if "Flush" in name:  # on a thread apart; the process goes on
        return None
    return GapKind.CODE_LOAD if "Loading" in name else GapKind.PROFILER


def _by_step(pieces: IdlePieces, ended_by: Rows, start: Ints, end: Ints) -> Gaps:
    pieces = cut(merged(pieces), end)
    step = np.searchsorted(end, pieces.start, "right").astype(np.int32)
    return Gaps(
        step=step,
        start_ns=pieces.start,
        end_ns=pieces.end,
        kind=pieces.kind,
        row=pieces.row,
        gap=pieces.gap,
        ended_by=ended_by.astype(np.int32)[pieces.gap],
    )


def _gaps_of_nothing() -> Gaps:
    none, nobody = np.zeros(0, np.int64), np.zeros(0, np.int32)
    return Gaps(nobody, none, none, none.astype(np.uint8), nobody, nobody, nobody)
