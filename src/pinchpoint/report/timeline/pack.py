"""The timeline as text inside the page: columns of whole numbers, compressed, in base64.

The bytes, once decompressed: length of the head (4 bytes), the head as JSON, then six columns of
32-bit little-endian numbers, each split into four planes of bytes, because equal high bytes side by
side compress well. Starts and rows are differences within a track, links differences to the slice
itself. Times are in ticks, of 1 ns unless the recording is longer than 2^32 ns.
"""

import base64
import gzip
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.steps.steps import steps
from pinchpoint.monitor.sample import KNOWN_METRICS
from pinchpoint.report.documents.report import Report
from pinchpoint.report.plain import plain
from pinchpoint.report.quantity import quantity
from pinchpoint.report.timeline.lanes import NO_LINK, Numbers, Slices, Timeline, distinct
from pinchpoint.report.timeline.marks import Mark
from pinchpoint.trace import Table, Trace

# ------------------------------------------------------------------------------------------------
# Counters on the timeline: what changed while the recording ran, the most telling first.


MOST_COUNTERS = 6  # more push the lanes out of sight; the table of telemetry has them all
COUNTER_POINTS = 1000  # of one counter; of more, every n-th is drawn
_NOT_DRAWN = frozenset({"event_reasons"})  # bits, not a quantity
_LABEL_LIMIT = 60  # characters of the column of names
_UNITS = {"bytes/s": "bytes a second"}  # as report/quantity.py scales them


def counters_of(trace: Trace, start_ns: int, end_ns: int) -> list[dict[str, Any]]:
    """Series that vary between two times, with the sample before and the one after."""
    rows = trace.counters
    if rows is None or not len(rows):
        return []
    known = {name: order for order, name in enumerate(KNOWN_METRICS)}
    found = []
    for mine in _series(rows):
        name = trace.text(rows, "name", int(mine[0])) or ""
        mine = _between(rows["time_ns"], mine, start_ns, end_ns)
        if name in _NOT_DRAWN or len(mine) < 2:
            continue
        least, most = range_of(rows["value"][mine], name)
        if least != most:  # as far as a reader could tell
            found.append((known.get(name, len(known)), _drawn(rows, name, mine)))
    found.sort(key=lambda pair: pair[0])
    return [one for _, one in found[:MOST_COUNTERS]]


def _series(rows: Table) -> list[NDArray[np.intp]]:
    """Rows of one name and device each, without values that are no numbers."""
    key = np.stack((rows["name"].astype(np.int64), rows.filled("device", -1).astype(np.int64)))
    which = np.unique(key, axis=1, return_inverse=True)[1].reshape(-1)
    real = np.isfinite(rows["value"])
    found = (np.flatnonzero((which == one) & real) for one in range(int(which.max()) + 1))
    return [mine for mine in found if len(mine)]


def _between(
    times: NDArray[np.int64], mine: NDArray[np.intp], start_ns: int, end_ns: int
) -> NDArray[np.intp]:
    first, last = np.searchsorted(times[mine], (start_ns, end_ns))
    mine = mine[max(int(first) - 1, 0) : int(last) + 1]
    return mine[:: max(len(mine) // COUNTER_POINTS, 1)]


def range_of(values: NDArray[np.float64], name: str) -> tuple[str, str]:
    """Least and most, as people read them."""
    about = KNOWN_METRICS.get(name)
    unit = about.unit if about else ""
    least, most = float(values.min()), float(values.max())
    return quantity(least, _UNITS.get(unit, unit)), quantity(most, _UNITS.get(unit, unit))


def _drawn(rows: Table, name: str, mine: NDArray[np.intp]) -> dict[str, Any]:
    about, device = KNOWN_METRICS.get(name), rows.value("device", int(mine[0]))
    label = about.label if about else name
    values = rows["value"][mine]
    return {
        "label": plain(label if device is None else f"{label} · device {device}", _LABEL_LIMIT),
        "range": " to ".join(range_of(values, name)),
        "least": min(float(values.min()), 0.0),
        "most": max(float(values.max()), 0.0),
        "times_ns": rows["time_ns"][mine].tolist(),
        "values": values.tolist(),
    }


# ------------------------------------------------------------------------------------------------
# The timeline as text inside the page: columns of whole numbers, compressed, in base64.


NAME_LIMIT = 200  # characters
_COMPRESSION = 6  # zlib's own default


def pack(
    trace: Trace, drawn: Timeline, report: Report, marked: Mapping[str, Mark] | None = None
) -> str:
    """The timeline in base64, with what the links of the page lead to."""
    slices = drawn.slices
    tick_ns = (drawn.end_ns - drawn.start_ns) // (1 << 32) + 1
    names, name, _ = distinct(slices.name)
    first = _track_begins(slices)
    start = (slices.start_ns - drawn.start_ns) // tick_ns
    own = np.arange(len(slices))
    columns = (
        np.diff(start, prepend=0) * ~first + start * first,
        slices.duration_ns // tick_ns,
        name,
        np.where(slices.link == NO_LINK, 0, slices.link - own),
        slices.count,
        np.diff(slices.row, prepend=0) * ~first + slices.row * first,
    )
    head = {
        "start_ns": drawn.start_ns,
        "ticks": (drawn.end_ns - drawn.start_ns) // tick_ns,
        "tick_ns": tick_ns,
        "slices": len(slices),
        "names": [plain(trace.names[i], NAME_LIMIT) for i in names.tolist()],
        "lanes": [{"label": plain(lane.label, 60), "kind": lane.kind} for lane in drawn.lanes],
        "tracks": _tracks(slices, first),
        "tables": [[table, len(place)] for table, place in drawn.place_of.items()],
        "steps": _steps(trace),
        "places": _places(trace, slices, report),
        "counters": counters_of(trace, drawn.start_ns, drawn.end_ns),
        "marks": _marks(trace, drawn, marked or {}, names, tick_ns),
    }
    text = msgspec.json.encode(head)
    body = len(text).to_bytes(4, "little") + text + b"".join(_planes(c) for c in columns)
    return base64.b64encode(gzip.compress(body, _COMPRESSION, mtime=0)).decode("ascii")


def _planes(column: Numbers) -> bytes:
    values = (column & 0xFFFFFFFF).astype("<u4")
    return values.view(np.uint8).reshape(-1, 4).T.tobytes()


def _track_begins(slices: Slices) -> Any:
    first = np.ones(len(slices), np.bool_)
    first[1:] = (np.diff(slices.lane) != 0) | (np.diff(slices.depth) != 0)
    return first


def _tracks(slices: Slices, first: Any) -> list[list[int]]:
    """Lane, depth, first slice and number of slices of each track."""
    begin = np.flatnonzero(first)
    counts = np.diff(np.append(begin, len(slices)))
    rows = zip(slices.lane[begin], slices.depth[begin], begin, counts, strict=True)
    return [[int(value) for value in row] for row in rows]


def _steps(trace: Trace) -> list[list[int]]:
    """Number, start and end of each step."""
    found = steps(trace)
    if found.how == "none":
        return []
    rows = zip(found.number, found.start_ns, found.end_ns, strict=True)
    return [[int(value) for value in row] for row in rows]


def _places(trace: Trace, slices: Slices, report: Report) -> list[dict[str, Any]]:
    """Where findings happen: the slice that a piece of evidence names, or only the time."""
    places = []
    numbers = {text: i for i, text in enumerate(trace.names)}
    for finding, item in enumerate(report.findings):
        for fact in item.evidence:
            if fact.at_ns is None:
                continue
            there = slices.start_ns == fact.at_ns
            if fact.name is not None:
                there = there & (slices.name == numbers.get(fact.name, -1))
            rows = np.flatnonzero(there & (slices.count == 0))
            places.append(
                {
                    "finding": finding,
                    "id": item.id,
                    "what": plain(fact.what, NAME_LIMIT),
                    "at_ns": fact.at_ns,
                    "slice": int(rows[-1]) if len(rows) else None,
                }
            )
    return places


def _marks(
    trace: Trace, drawn: Timeline, marked: Mapping[str, Mark], shown: Numbers, tick_ns: int
) -> list[dict[str, Any]]:
    """Positions and times as differences from one to the next; names by their position."""
    wanted = {name for mark in marked.values() for name in mark.names}
    number = {trace.names[i]: n for n, i in enumerate(shown.tolist()) if trace.names[i] in wanted}
    found = []
    for key, mark in marked.items():
        one: dict[str, Any] = {"key": key, "label": mark.label, "count": mark.count}
        if mark.names:
            one |= {"names": [number[n] for n in mark.names if n in number], "kind": mark.kind}
        elif mark.slices:
            one["slices"] = np.diff(mark.slices, prepend=0).tolist()
        else:
            starts = (np.array(mark.starts, np.int64) - drawn.start_ns) // tick_ns
            one["starts"] = np.diff(starts, prepend=0).tolist()
            one["lengths"] = (np.array(mark.lengths, np.int64) // tick_ns).tolist()
        found.append(one)
    return found
