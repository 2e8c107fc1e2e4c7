"""The spans of step markers, with what is wrong with markers taken out.

The last call of a profiler's ``step()`` opens a marker in which nothing happens: that stub is no
step, and where all of the work comes before or after the markers, none of them is one. A marker
whose length is damaged (zero or below) ends where the next one begins, and so does one that was
never closed; the last of those is no whole step. Markers of one spelling
follow each other, so that one which reaches into the next ends there; of markers of several
spellings, the outer ones count.
"""

import re

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.launches import issued, main_thread, own_work
from pinchpoint.analysis.steps.repetition import Spans
from pinchpoint.trace import HostKind, Table, Trace
from pinchpoint.trace.engine_steps import engine_step

Times = NDArray[np.int64]
Mask = NDArray[np.bool_]

# Shares of the median marker's work. A stub may still hold a call or two of the program's end,
# such as the log of the last loss.
STUB_RATIO = 0.05
PARTIAL_RATIO = 0.5  # below a half, health calls a marker a partial step
LONG_PAUSE_RATIO = 0.5  # of a usual marker: shorter holes between markers are the loop's own work


def marked_spans(trace: Trace) -> Spans | None:
    """The steps that the recording marks on its main thread; None if it marks none."""
    rows = trace.steps
    if rows is None or not len(rows):
        return None
    rows = _of_one_level(trace, rows.take(rows["thread"] == main_thread(trace)))
    start, end = rows["start_ns"], _ends(trace, rows)
    number = np.where(rows.known("number"), rows.filled("number", 0), np.arange(len(rows)))
    at = _issued_ns(trace)
    if len(at) and not ((at >= start.min()) & (at < end.max())).any():
        return None
    open_last = _never_closed(rows.end_ns)
    if open_last:
        end[-1] = min(end[-1], start[-1] + int(np.median(end[:-1] - start[:-1])))
    work = _work_in(at, start, end)
    usual = float(np.median(work[work > 0])) if (work > 0).any() else 0.0
    kept = _real(start, end, work, usual)
    count = int(kept.sum())
    words = f"{count} step marker{'s' if count != 1 else ''} ({_spelling(trace, rows)})"
    start, end, number, work = start[kept], end[kept], number[kept], work[kept]
    partial = _after_pause(number, start, end)
    partial[-1] |= bool(work[-1] < PARTIAL_RATIO * usual) or (open_last and bool(kept[-1]))
    return Spans(start, end, number, words, None, partial=partial)


def _of_one_level(trace: Trace, rows: Table) -> Table:
    """One row a step: the outer markers. One that holds several of its own spelling, or reaches
    into the next, has a damaged length, and these count as well."""
    spelt = np.array([_stem(trace.names[name]) for name in rows["name"].tolist()])
    outer = np.ones(len(rows), np.bool_)
    held_until = np.maximum.accumulate(rows.end_ns)[:-1]
    outer[1:] = rows["start_ns"][1:] >= held_until
    longer = np.append(False, rows.end_ns[1:] > held_until)
    holder = np.maximum.accumulate(np.where(outer, np.arange(len(rows)), 0))
    alike = ~outer & (spelt == spelt[holder])
    several = np.bincount(holder[alike], minlength=len(rows)) > 1
    return rows.take(outer | (alike & (longer | several[holder])))


def _stem(name: str) -> str:
    """What markers of one kind share; rounds of a serving engine have counts of their own."""
    return re.sub(r"\d.*$" if engine_step(name) else r"\d+\s*$", "", name)


def _spelling(trace: Trace, rows: Table) -> str:
    return _stem(trace.text(rows, "name", 0) or "step") + "N"


def _ends(trace: Trace, rows: Table) -> Times:
    """Where each marker ends, at the latest where the next one begins; the last one, if it lasts
    longer than all else of the recording together, with the recording."""
    start, end = rows["start_ns"], rows.end_ns.copy()
    tables = (trace.api_calls, trace.device_ops)
    recorded = max((int(t.end_ns.max()) for t in tables if t is not None and len(t)), default=0)
    if 0 < recorded - start[0] < end[-1] - recorded:
        end[-1] = max(recorded, int(start[-1]))
    damaged = end <= start
    end[:-1] = np.where(damaged[:-1], start[1:], np.minimum(end[:-1], start[1:]))
    return end


def _never_closed(end_ns: Times) -> bool:
    """Whether the last markers were opened and never closed: then all of these end at one moment,
    with the recording, and nothing says where the last one's step ended."""
    return len(end_ns) > 1 and bool(end_ns[-1] == end_ns[-2])


def _issued_ns(trace: Trace) -> Times:
    """When work was issued: device operations, else operators of the main thread."""
    by, host = issued(trace), trace.host_ops
    if by.linked.any():
        return by.start_ns[by.linked & own_work(trace)]
    if host is None:
        return np.zeros(0, np.int64)
    shown = (host["kind"] == HostKind.OPERATOR) & (host["thread"] == main_thread(trace))
    at: Times = host["start_ns"][shown]
    return at


def _work_in(at: Times, start: Times, end: Times) -> NDArray[np.int64]:
    """How much was issued in each span."""
    which = np.searchsorted(start, at, "right") - 1
    inside = (which >= 0) & (at < end[which]) if len(start) else which > 0
    return np.bincount(which[inside], minlength=len(start))


def _real(start: Times, end: Times, work: NDArray[np.int64], usual: float) -> Mask:
    """Without stubs, and without what has no length at all."""
    lasting = end - start
    empty, median_ns = work < STUB_RATIO * usual, np.median(lasting)
    kept = (lasting > 0) & ~(empty & (lasting < STUB_RATIO * median_ns))
    kept[-1] &= not (empty[-1] and lasting[-1] < median_ns)
    return kept if kept.any() else np.ones(len(start), np.bool_)


def _after_pause(number: Times, start: Times, end: Times) -> Mask:
    """Steps before which steps were not recorded: a schedule that records some of every few.

    The numbers jump as they usually do not, and the markers leave a hole.
    """
    paused = np.zeros(len(number), np.bool_)
    if len(number) < 3:
        return paused
    jump, hole = np.diff(number), start[1:] - end[:-1]
    paused[1:] = (jump != np.median(jump)) & (hole > LONG_PAUSE_RATIO * np.median(end - start))
    return paused
