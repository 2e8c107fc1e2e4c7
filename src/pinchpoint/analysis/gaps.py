"""Device-idle time of the steps, cut into pieces that each have one cause.

A gap ends when an operation starts. If that operation was issued before the gap began, the
device waited for something else than the host. If it was issued late, the gap is what its host
thread was doing instead: each instant goes to the innermost row that was open on the issuing
thread, or, where that thread waited for the autograd thread or was waited for, on the other one.
The rest of the gap, from the launching call on, is the call itself and the start latency.
"""

from dataclasses import dataclass, replace

import numpy as np

from pinchpoint.analysis.catching_up import after_syncs
from pinchpoint.analysis.gap_kinds import GapKind
from pinchpoint.analysis.handover import host_did
from pinchpoint.analysis.host_activity import activity
from pinchpoint.analysis.host_timeline import NO_ROW, host_rows
from pinchpoint.analysis.idle_pieces import IdlePieces, cut, merged, together
from pinchpoint.analysis.launches import issued, main_thread, own_work
from pinchpoint.analysis.queue import latest_prompt_start_ns
from pinchpoint.analysis.steps import steps
from pinchpoint.analysis.synchronisation import waits
from pinchpoint.trace import HostKind, Trace, once_per_trace
from pinchpoint.trace import intervals as iv
from pinchpoint.trace.arrays import Codes, Ints, Rows


@dataclass(frozen=True, eq=False)
class Gaps:
    """Pieces of idle time, in order of time; arrays of one length.

    They fill the device's idle time inside the step windows exactly and do not overlap.
    """

    step: Ints  # position of the step window
    start_ns: Ints
    end_ns: Ints
    kind: Codes  # GapKind
    row: Rows  # the responsible one of ``host_rows``, or NO_ROW
    gap: Ints  # pieces with the same number are one gap of the device
    ended_by: Rows  # row of device_ops that ended the gap, or NO_ROW

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


def _explained(trace: Trace, idle: iv.Intervals, ended_by: Rows) -> IdlePieces:
    """Every gap in up to three parts: before the launching call, in it, and after it."""
    by, rows = issued(trace), host_rows(trace)
    code = activity(trace)
    known = ended_by != NO_ROW
    linked = known & by.linked[ended_by]
    call = np.where(linked, by.call[ended_by] + rows.operators, NO_ROW)
    # Without a call there is no telling when the operation was issued: the host explains it all.
    asked = np.where(linked, by.start_ns[ended_by], idle.end)
    returned = np.where(linked, by.end_ns[ended_by], idle.end)
    thread = np.where(linked, by.thread[ended_by], main_thread(trace))
    issue = np.clip(asked, idle.start, idle.end)
    done = np.clip(returned, issue, idle.end)
    gap = np.arange(len(idle.start), dtype=np.int64)
    did = host_did(trace, thread, idle.start, issue)
    before = IdlePieces(did.asked, did.start_ns, did.end_ns, code[did.row], did.row)
    during = IdlePieces(gap, issue, done, code[call], call)
    prompt = latest_prompt_start_ns(trace)
    late = np.where(idle.end - done > prompt, GapKind.DEPENDENCY, GapKind.START_LATENCY)
    after = IdlePieces(gap, done, idle.end, late.astype(np.uint8), call)
    return together(before, during, after)


def _overlaid(trace: Trace, pieces: IdlePieces) -> IdlePieces:
    """Time in which the profiler or the driver stopped the process, whatever was open then."""
    host = trace.host_ops
    if host is None:
        return pieces
    rows = np.flatnonzero(host["kind"] == HostKind.OVERHEAD)
    which = {name: _kind_of_overhead(trace.names[name]) for name in np.unique(host["name"][rows])}
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
    step = np.searchsorted(end, pieces.start, "right")
    return Gaps(
        step=step,
        start_ns=pieces.start,
        end_ns=pieces.end,
        kind=pieces.kind,
        row=pieces.row,
        gap=pieces.gap,
        ended_by=ended_by[pieces.gap],
    )


def _gaps_of_nothing() -> Gaps:
    none = np.zeros(0, np.int64)
    return Gaps(none, none, none, none.astype(np.uint8), none, none, none)
