"""The timeline as text inside the page: columns of whole numbers, compressed, in base64.

The bytes, once decompressed: length of the head (4 bytes), the head as JSON, then eight columns of
32-bit little-endian numbers, each split into planes of bytes, because equal high bytes side by side
compress well; planes of nothing but zeros are left out. Starts and rows are differences within a
track, links differences to the slice itself. Times are in ticks, of 1 ns unless the recording is
longer than 2^32 ns.
"""

import base64
import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pinchpoint.analysis.device.short_names import short_kernel_name
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.json_text import encoded
from pinchpoint.report.documents.report import Report, finding_key
from pinchpoint.report.plain import plain
from pinchpoint.report.timeline.counters import counters_of
from pinchpoint.report.timeline.details import details, sources
from pinchpoint.report.timeline.edges import edges, path
from pinchpoint.report.timeline.full_steps import FullStep
from pinchpoint.report.timeline.kinds import KINDS, Numbers
from pinchpoint.report.timeline.lanes import NO_LINK, Entries, Slices, Timeline
from pinchpoint.report.timeline.marks import Mark
from pinchpoint.trace import Trace


@dataclass(frozen=True)
class Shown:
    """The steps that the page leads to by name, and whether every event is drawn alone."""

    steps: tuple[FullStep, ...] = ()
    all_in_full: bool = True


NAME_LIMIT = 1000  # characters; names of templates reach this
LONG_NAMES = 2_000_000  # characters of all names; where there are more, each has SHORT_LIMIT
SHORT_LIMIT = 100  # characters
MOST_NAMES = 60_000  # that are searched, those of most events; more are no names but numbers
_COMPRESSION = 6  # zlib's own default


def pack(
    trace: Trace,
    drawn: Timeline,
    report: Report,
    marked: Mapping[str, Mark] | None = None,
    steps_shown: Shown = Shown(),
) -> str:
    """The timeline in base64, with what the links of the page lead to."""
    slices = drawn.slices
    tick_ns = (drawn.end_ns - drawn.start_ns) // (1 << 32) + 1
    kept, entry = _kept_entries(drawn.entries)
    first = _track_begins(slices)
    start = (slices.start_ns - drawn.start_ns) // tick_ns
    own = np.arange(len(slices))
    arguments = details(trace, slices.row)
    source, source_texts = sources(trace, slices.row)
    columns = (
        np.diff(start, prepend=0) * ~first + start * first,
        slices.duration_ns // tick_ns,
        entry[slices.entry],
        np.where(slices.link == NO_LINK, 0, slices.link - own),
        slices.count,
        np.diff(slices.row, prepend=0) * ~first + slices.row * first,
        arguments.number,
        source,
    )
    head = {
        "start_ns": drawn.start_ns,
        "ticks": (drawn.end_ns - drawn.start_ns) // tick_ns,
        "tick_ns": tick_ns,
        "slices": len(slices),
        **_names(trace, drawn.entries, kept),
        "kinds": [[kind.label, kind.lane, kind.css] for kind in KINDS],
        "details": arguments.sets,
        "sources": source_texts,
        "lanes": [{"label": plain(lane.label, 60), "kind": lane.kind} for lane in drawn.lanes],
        "tracks": _tracks(slices, first),
        "tables": [[table, len(place)] for table, place in drawn.place_of.items()],
        "steps": _steps(trace),
        "places": _places(trace, drawn, report),
        "counters": counters_of(trace, drawn.start_ns, drawn.end_ns),
        "marks": _marks(trace, drawn, marked or {}, entry, tick_ns),
        "edges": _edges(trace, drawn),
        "path": _path(trace, drawn),
        "shown_steps": [[s.number, s.start_ns, s.end_ns, s.why] for s in steps_shown.steps],
        "all_in_full": steps_shown.all_in_full,
    }
    planes = [_planes(column) for column in columns]
    head["planes"] = [[n for n, plane in enumerate(four) if any(plane)] for four in planes]
    text = encoded(head)
    filled = b"".join(plane for four in planes for plane in four if any(plane))
    body = len(text).to_bytes(4, "little") + text + filled
    return base64.b64encode(gzip.compress(body, _COMPRESSION, mtime=0)).decode("ascii")


def _kept_entries(entries: Entries) -> tuple[Numbers, Numbers]:
    """The entries whose names are on the page, and the position of each entry among them.

    Those that are not share one position more, of a name that says so.
    """
    kept = np.sort(np.argsort(-entries.count, kind="stable")[:MOST_NAMES])
    position = np.full(len(entries), len(kept), np.int64)
    position[kept] = np.arange(len(kept))
    return kept, position


def _names(trace: Trace, entries: Entries, kept: Numbers) -> dict[str, Any]:
    """Every entry: its whole name, a short one where there is a shorter, its kind, exact sums."""
    texts = [trace.names[i] for i in entries.name[kept].tolist()]
    many = sum(min(len(text), NAME_LIMIT) for text in texts) > LONG_NAMES
    device = [KINDS[kind].lane == "device" for kind in entries.kind[kept].tolist()]
    names = [plain(text, SHORT_LIMIT if many else NAME_LIMIT) for text in texts]
    short = [
        plain(short_kernel_name(text[:NAME_LIMIT]) if of_device else text, SHORT_LIMIT)
        for text, of_device in zip(texts, device, strict=True)
    ]
    rest = np.setdiff1d(np.arange(len(entries)), kept)
    sums = (entries.kind, entries.count, entries.total_ns, entries.longest_ns)
    kinds, count, total, longest = (column[kept].tolist() for column in sums)
    if len(rest):
        names.append(f"one of {len(rest):,} names with few events each that are not on this page")
        kinds.append(int(entries.kind[rest[0]]))
        count.append(int(entries.count[rest].sum()))
        total.append(int(entries.total_ns[rest].sum()))
        longest.append(int(entries.longest_ns[rest].max()))
    return {
        "names": names,
        "short": {i: one for i, one in enumerate(short) if one != names[i]},
        "kind": kinds,
        "events": count,
        "total_ns": total,
        "longest_ns": longest,
    }


def _edges(trace: Trace, drawn: Timeline) -> list[list[int]]:
    """Slices that follow from each other, where both are drawn alone."""
    place = np.concatenate([*drawn.place_of.values()])
    found = [[int(place[begin]), int(place[end]), how] for begin, end, how in edges(trace)]
    return [one for one in found if all(_alone(drawn, slice_) for slice_ in one[:2])]


def _path(trace: Trace, drawn: Timeline) -> list[int]:
    """The slices of the critical path, as differences from one to the next."""
    place = np.concatenate([*drawn.place_of.values()])
    shown = [at for at in place[path(trace)].tolist() if _alone(drawn, at)]
    apart: list[int] = np.diff(np.array(shown, np.int64), prepend=0).tolist()
    return apart


def _alone(drawn: Timeline, at: int) -> bool:
    return at != NO_LINK and not drawn.slices.count[at]


def _planes(column: Numbers) -> list[bytes]:
    """The bytes of the numbers, the lowest ones first."""
    values = (column & 0xFFFFFFFF).astype("<u4")
    return [plane.tobytes() for plane in values.view(np.uint8).reshape(-1, 4).T]


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


def _places(trace: Trace, drawn: Timeline, report: Report) -> list[dict[str, Any]]:
    """Where findings happen: the slice that a piece of evidence names, or only the time."""
    places, slices = [], drawn.slices
    named = drawn.entries.name[slices.entry]
    numbers = {text: i for i, text in enumerate(trace.names)}
    for finding, item in enumerate(report.findings):
        key = finding_key(report.findings[: finding + 1])
        for fact in item.evidence:
            if fact.at_ns is None:
                continue
            there = slices.start_ns == fact.at_ns
            if fact.name is not None:
                there = there & (named == numbers.get(fact.name, -1))
            rows = np.flatnonzero(there & (slices.count == 0))
            places.append(
                {
                    "finding": finding,
                    "id": key,
                    "what": plain(fact.what, NAME_LIMIT),
                    "at_ns": fact.at_ns,
                    "slice": int(rows[-1]) if len(rows) else None,
                }
            )
    return places


def _marks(
    trace: Trace, drawn: Timeline, marked: Mapping[str, Mark], entry: Numbers, tick_ns: int
) -> list[dict[str, Any]]:
    """Positions and times as differences from one to the next; names by their entries."""
    wanted = {name for mark in marked.values() for name in mark.names}
    number: dict[tuple[str, str], list[int]] = {}
    for position, (name, kind) in enumerate(
        zip(drawn.entries.name.tolist(), drawn.entries.kind.tolist(), strict=True)
    ):
        if trace.names[name] in wanted:
            named = trace.names[name], KINDS[kind].lane
            number.setdefault(named, []).append(int(entry[position]))
    found = []
    for key, mark in marked.items():
        one: dict[str, Any] = {"key": key, "label": mark.label, "count": mark.count}
        if mark.names:
            one["names"] = [n for name in mark.names for n in number.get((name, mark.kind), ())]
        elif mark.slices:
            one["slices"] = np.diff(mark.slices, prepend=0).tolist()
        else:
            starts = (np.array(mark.starts, np.int64) - drawn.start_ns) // tick_ns
            one["starts"] = np.diff(starts, prepend=0).tolist()
            one["lengths"] = (np.array(mark.lengths, np.int64) // tick_ns).tolist()
        found.append(one)
    return found
