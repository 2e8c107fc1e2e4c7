"""Tracks of our own beside the events: steps, findings, why the device is idle, counters."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pinchpoint.analysis.gap_kinds import GapKind
from pinchpoint.analysis.gaps import gaps
from pinchpoint.analysis.steps import steps
from pinchpoint.diagnosis.finding import Finding
from pinchpoint.export.chrome_slices import DEVICES
from pinchpoint.export.excerpt import Excerpt
from pinchpoint.report.document import Report
from pinchpoint.report.plain import plain
from pinchpoint.report.words import report as wording
from pinchpoint.trace import Table, Trace

OURS = 1_000_000  # process number
STEPS, IDLE, FINDINGS = 1, 2, 10  # threads of it; findings from 10 on, one track each
MOST_COUNTERS = 100
MOST_POINTS = 5000  # of one counter
_TEXT_LIMIT = 600

Event = dict[str, Any]


def meta(what: str, process: int, thread: int, **said: str | int) -> Event:
    """A name or a place in the order, for a process or thread."""
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": said}


def our_tracks(trace: Trace, report: Report, part: Excerpt) -> Iterator[Event]:
    """All of them, with their names."""
    yield meta("process_name", OURS, 0, name="Pinchpoint")
    yield meta("process_sort_index", OURS, 0, sort_index=-1)
    yield meta("thread_name", OURS, STEPS, name="steps")
    yield meta("thread_name", OURS, IDLE, name="device idle, and why")
    yield from _steps(trace, part)
    yield from _idle(trace, part)
    for number, finding in enumerate(report.findings):
        name = plain(f"{number + 1} {finding.id}")
        yield meta("thread_name", OURS, FINDINGS + number, name=name)
        yield from _places(report, finding, FINDINGS + number, part)
    if trace.counters is not None:
        yield from _counters(trace, trace.counters, part)


def _slice(name: str, thread: int, start_ns: int, end_ns: int, **said: Any) -> Event:
    event = {"ph": "X", "cat": "pinchpoint", "name": name, "pid": OURS, "tid": thread}
    times = {"ts": start_ns / 1000, "dur": max(end_ns - start_ns, 0) / 1000}
    return event | times | ({"args": said} if said else {})


def _steps(trace: Trace, part: Excerpt) -> Iterator[Event]:
    found = steps(trace)
    if found.how == "none":
        return
    for position in np.flatnonzero(part.holds(found.start_ns, found.end_ns)).tolist():
        start, end = int(found.start_ns[position]), int(found.end_ns[position])
        if part.has((start + end) // 2):
            number = int(found.number[position])
            yield _slice(
                f"step {number}", STEPS, start, end, complete=bool(found.complete[position])
            )


def _idle(trace: Trace, part: Excerpt) -> Iterator[Event]:
    found = gaps(trace)
    kept = np.flatnonzero(part.holds(found.start_ns, found.end_ns))
    columns = (found.kind[kept], found.start_ns[kept], found.end_ns[kept])
    for kind, start, end in zip(*(column.tolist() for column in columns), strict=True):
        if part.has(start) and part.has(end):
            yield _slice(GapKind(kind).label, IDLE, start, end)


def _places(report: Report, finding: Finding, thread: int, part: Excerpt) -> Iterator[Event]:
    said = {
        "summary": plain(finding.summary, _TEXT_LIMIT),
        "gain": plain(wording.gain(report, finding), _TEXT_LIMIT),
        "where": plain(wording.place(finding.location) or "not known", _TEXT_LIMIT),
        "fix": plain(finding.fix, _TEXT_LIMIT),
    }
    for fact in finding.evidence:
        if fact.at_ns is None or not part.has(fact.at_ns):
            continue
        yield {
            "ph": "i",
            "s": "t",
            "cat": "finding",
            "name": finding.id,
            "pid": OURS,
            "tid": thread,
            "ts": fact.at_ns / 1000,
            "args": said | {"evidence": plain(fact.what, _TEXT_LIMIT)},
        }


def _counters(trace: Trace, rows: Table, part: Excerpt) -> Iterator[Event]:
    """Each counter as a track of its device, or of ours where it belongs to the host."""
    window = replace(part, shortest_ns=0)
    inside = window.holds(rows["time_ns"], rows["time_ns"]) & np.isfinite(rows["value"])
    device = rows.filled("device", -1).astype(np.int64)
    keys = np.unique(np.stack((rows["name"][inside].astype(np.int64), device[inside])), axis=1)
    for name, number in keys.T[:MOST_COUNTERS].tolist():
        mine = np.flatnonzero(inside & (rows["name"] == name) & (device == number))
        mine = mine[:: len(mine) // MOST_POINTS + 1]
        label = plain(trace.names[name])
        for time_ns, value in zip(
            rows["time_ns"][mine].tolist(), rows["value"][mine].tolist(), strict=True
        ):
            yield {
                "ph": "C",
                "name": label,
                "pid": OURS if number < 0 else DEVICES + number,
                "ts": time_ns / 1000,
                "args": {"value": value},
            }
