"""The recording in the Trace Event format that Perfetto and ``chrome://tracing`` open.

Steps, findings, causes of idle time and counters are tracks of their own. Times are microseconds
with three decimals, which is what the format has. Arrows lead from a launch to what it started.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np

from pinchpoint.export.chrome_slices import (
    DEVICES,
    HOST,
    LANES,
    OVERHEAD_TRACKS,
    Slices,
    device_slices,
    host_slices,
)
from pinchpoint.export.chrome_tracks import Event, meta, our_tracks
from pinchpoint.export.excerpt import WHOLE, Excerpt
from pinchpoint.report.document import Report
from pinchpoint.report.plain import plain
from pinchpoint.trace import Trace

NAME_LIMIT = 1000  # characters
_CHUNK = 20_000


def chrome(trace: Trace, report: Report, part: Excerpt = WHOLE) -> Iterator[bytes]:
    """The file in pieces; of a part of the recording, with the parts of slices inside it."""
    names = [plain(name, NAME_LIMIT) for name in trace.names]
    yield b'{"displayTimeUnit":"ns","traceEvents":[\n'
    yield msgspec.json.encode(meta("process_name", HOST, 0, name="host"))
    for piece in _pieces(trace, report, names, part):
        if piece:
            yield b",\n" + b",\n".join(msgspec.json.encode(event) for event in piece)
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
