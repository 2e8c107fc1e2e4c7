"""The memory that the allocator holds from the driver, over time."""

import numpy as np

from pinchpoint.analysis.memory.allocator.lives import BEFORE
from pinchpoint.frozen import dataclass
from pinchpoint.trace import AllocatorAction, MemorySnapshot, Table
from pinchpoint.trace.arrays import Ints, Rows

SMALL_SEGMENT_BYTES = 2 << 20  # kSmallBuffer of c10/cuda/CUDACachingAllocator: small requests
MOST_LOOKED_AT = 50_000_000  # ranges, to find parts of them; real files need hundreds
_GAINS = (AllocatorAction.SEGMENT_ALLOC, AllocatorAction.SEGMENT_MAP)
_LOSSES = (AllocatorAction.SEGMENT_FREE, AllocatorAction.SEGMENT_UNMAP)


@dataclass(frozen=True)
class Range:
    """Addresses ``[start, end)`` held from the driver. ``mapped``: part of an expandable segment,
    where neighbours join; a fixed segment stays alone."""

    start: int
    end: int
    mapped: bool
    small: bool
    stream: int
    pool: str | None = None


@dataclass(frozen=True)
class Held:
    """A range and when it was held: from after event ``birth`` until event ``death``."""

    range: Range
    birth: int
    death: int


def reserved_change(events: Table) -> Ints:
    """Bytes gained from the driver (negative: given back) by each event; shape ``(events,)``."""
    rows = segment_rows(events)
    change, size = np.zeros(len(events), np.int64), events["bytes"][rows]
    change[rows] = np.where(np.isin(events["action"][rows], _GAINS), size, -size)
    return change


def segment_rows(events: Table) -> Rows:
    """Rows of the events that gain or lose memory of the driver."""
    return np.flatnonzero(np.isin(events["action"], (*_GAINS, *_LOSSES)))


def held_over_time(events: Table, at_end: list[Range], start: list[Range]) -> tuple[Held, ...]:
    """Every range with its life. ``at_end`` tells which pool a range belongs to."""
    known = {r.start: r for r in at_end}
    ranges = {r.start: (r, BEFORE) for r in start}
    out: list[Held] = []
    search = _Search()
    for row in segment_rows(events).tolist():
        change = event_range(events, row, known)
        if events["action"][row] in _GAINS:
            ranges[change.start] = (change, row)
            continue
        for piece, birth in search.overlapping(ranges, change):
            del ranges[piece.start]
            out.append(Held(piece, birth, row))
            for rest in _rest(piece, change):
                ranges[rest.start] = (rest, row)
    out += [Held(r, birth, len(events)) for r, birth in ranges.values()]
    return tuple(sorted(out, key=lambda h: (h.birth, h.range.start)))


def ranges_at_end(snapshot: MemorySnapshot, device: int, names: tuple[str, ...]) -> list[Range]:
    """The segments of the snapshot."""
    table = snapshot.segments
    out = []
    for row in np.flatnonzero(table["device"] == device).tolist():
        start, pool = int(table["address"][row]), table.value("pool", row)
        out.append(
            Range(
                start,
                start + int(table["bytes"][row]),
                bool(table["expandable"][row]),
                bool(table["small"][row]),
                int(table["stream"][row]),
                None if pool is None else names[int(pool)],
            )
        )
    return out


def ranges_at_start(events: Table, at_end: list[Range]) -> list[Range]:
    """What was held before the first event: the end with every event undone, last first."""
    known = {r.start: r for r in at_end}
    ranges = {r.start: (r, 0) for r in at_end}
    search = _Search()
    for row in segment_rows(events)[::-1].tolist():
        change = event_range(events, row, known)
        if events["action"][row] in _LOSSES:
            ranges[change.start] = (change, 0)
            continue
        for piece, _ in search.overlapping(ranges, change):
            del ranges[piece.start]
            for rest in _rest(piece, change):
                ranges[rest.start] = (rest, 0)
    return sorted((r for r, _ in ranges.values()), key=lambda r: r.start)


def event_range(events: Table, row: int, known: dict[int, Range]) -> Range:
    """The range that a segment event is about."""
    start, size = int(events["address"][row]), int(events["bytes"][row])
    mapped = events["action"][row] in (AllocatorAction.SEGMENT_MAP, AllocatorAction.SEGMENT_UNMAP)
    same = known.get(start)
    if same is not None and same.end - same.start == size:
        return same
    small = not mapped and size == SMALL_SEGMENT_BYTES
    return Range(start, start + size, mapped, small, int(events["stream"][row]))


class _Search:
    """Finds the ranges that an event takes away; gives up when a file makes that too much work."""

    def __init__(self) -> None:
        self._looked_at = 0

    def overlapping(
        self, ranges: dict[int, tuple[Range, int]], change: Range
    ) -> list[tuple[Range, int]]:
        exact = ranges.get(change.start)
        if exact is not None and exact[0].end == change.end:
            return [exact]
        self._looked_at += len(ranges)
        if self._looked_at > MOST_LOOKED_AT:
            return []
        return [
            (r, birth)
            for r, birth in ranges.values()
            if r.mapped == change.mapped and r.start < change.end and change.start < r.end
        ]


def _rest(piece: Range, cut: Range) -> list[Range]:
    out = []
    if piece.start < cut.start:
        out.append(_part(piece, piece.start, cut.start))
    if cut.end < piece.end:
        out.append(_part(piece, cut.end, piece.end))
    return out


def _part(of: Range, start: int, end: int) -> Range:
    return Range(start, end, of.mapped, of.small, of.stream, of.pool)
