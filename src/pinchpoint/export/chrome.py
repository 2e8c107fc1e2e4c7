"""The recording in the Trace Event format that Perfetto and ``chrome://tracing`` open.

Steps, findings, causes of idle time and counters are tracks of their own. Times are microseconds
with three decimals, which is what the format has. Arrows lead from a launch to what it started.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.gaps import gaps
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.finding import Finding
from pinchpoint.export.chrome_slices import (
    DEVICES,
    HOST,
    LANES,
    OVERHEAD_TRACKS,
    Slices,
    device_slices,
    host_slices,
)
from pinchpoint.export.excerpt import WHOLE, Excerpt
from pinchpoint.json_text import encoded
from pinchpoint.report.documents.report import Report
from pinchpoint.report.plain import plain
from pinchpoint.report.words import report as wording
from pinchpoint.trace import Table, Trace

# ------------------------------------------------------------------------------------------------
# Tracks of our own beside the events: steps, findings, why the device is idle, counters.


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


# ------------------------------------------------------------------------------------------------
# The recording in the Trace Event format that Perfetto and ``chrome://tracing`` open.


NAME_LIMIT = 1000  # characters
_CHUNK = 20_000


def chrome(trace: Trace, report: Report, part: Excerpt = WHOLE) -> Iterator[bytes]:
    """The file in pieces; of a part of the recording, with the parts of slices inside it."""
    names = [plain(name, NAME_LIMIT) for name in trace.names]
    yield b'{"exporter":"pinchpoint","displayTimeUnit":"ns","traceEvents":[\n'
    yield encoded(meta("process_name", HOST, 0, name="host"))
    for piece in _pieces(trace, report, names, part):
        if piece:
            yield b",\n" + b",\n".join(encoded(event) for event in piece)
    yield b"\n]}\n"


def _pieces(trace: Trace, report: Report, names: list[str], part: Excerpt) -> Iterator[list[Event]]:
    yield list(our_tracks(trace, report, part))
    host, device = host_slices(trace, part), device_slices(trace, part)
    yield list(_track_names(trace, [*host, *device]))
    for slices in (*host, *device):
        yield from _events(trace, slices, names)
    if trace.api_calls is not None and device:
        yield from _arrows(host[-1], device[0])


def _track_names(trace: Trace, drawn: Iterable[Slices]) -> Iterator[Event]:
    for device in trace.devices:
        label = plain(f"device {device.number} {device.name or ''}".rstrip())
        yield meta("process_name", DEVICES + device.number, 0, name=label)
    for process, track in sorted({pair for slices in drawn for pair in _tracks(slices)}):
        yield meta("thread_name", process, track, name=_track_name(trace, process, track))


def _tracks(slices: Slices) -> Iterator[tuple[int, int]]:
    pairs = np.unique(np.stack((slices.process, slices.track)), axis=1)
    return ((int(process), int(track)) for process, track in pairs.T)


def _track_name(trace: Trace, process: int, track: int) -> str:
    if process != HOST:
        beside = track // LANES
        return f"stream {track % LANES}" + (f", overlapping {beside}" if beside else "")
    thread = trace.threads[track % OVERHEAD_TRACKS]
    label = plain(thread.label or f"thread {thread.thread}")
    return f"profiler's own work, {label}" if track >= OVERHEAD_TRACKS else label


def _events(trace: Trace, slices: Slices, names: list[str]) -> Iterator[list[Event]]:
    for first in range(0, len(slices), _CHUNK):
        last = first + _CHUNK
        columns = (
            *(slices.name, slices.category, slices.process, slices.track),
            *(slices.start_ns, slices.end_ns),
        )
        rows = zip(*(column[first:last].tolist() for column in columns), strict=True)
        yield [
            _event(names[name], slices.categories.get(kind, "event"), pid, tid, start, end, said)
            for (name, kind, pid, tid, start, end), said in zip(
                rows, slices.arguments(trace, first, last), strict=True
            )
        ]


def _event(
    name: str, category: str, pid: int, tid: int, start: int, end: int, said: dict[str, Any]
) -> Event:
    event: Event = {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": start / 1000,
        "dur": (end - start) / 1000,
    }
    if said:
        event["args"] = {k: plain(v) if isinstance(v, str) else v for k, v in said.items()}
    return event


def _arrows(calls: Slices, device: Slices) -> Iterator[list[Event]]:
    """From each drawn call to the drawn operations that it started."""
    ops = device.table
    place = np.full(1 + (int(calls.row.max()) if len(calls) else 0), -1, np.int64)
    place[calls.row] = np.arange(len(calls))
    call = ops.filled("api_call", -1)[device.row]
    linked = np.flatnonzero((call >= 0) & (call < len(place)))
    linked = linked[place[call[linked]] >= 0]
    for first in range(0, len(linked), _CHUNK):
        piece: list[Event] = []
        for at in linked[first : first + _CHUNK].tolist():
            by = int(place[call[at]])
            piece.append(_end("s", at, calls, by))
            piece.append(_end("f", at, device, at) | {"bp": "e"})
        yield piece


def _end(phase: str, number: int, slices: Slices, at: int) -> Event:
    return {
        "ph": phase,
        "id": number,
        "cat": "launch",
        "name": "launch",
        "pid": int(slices.process[at]),
        "tid": int(slices.track[at]),
        "ts": int(slices.start_ns[at]) / 1000,
    }
