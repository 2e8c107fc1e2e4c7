"""Begin and end events (``ph`` B and E) as the complete events that they stand for.

They nest on each thread, as the Chrome trace event format has it: an end closes the innermost
begin that is open. An end with a name closes the innermost begin of that name, and what was opened
inside has lost its end. What has no partner is left out and counted.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np

from pinchpoint.importers.kineto.columns import Columns
from pinchpoint.importers.kineto.reading.fields import (
    ABSENT,
    CATEGORY_LANES,
    LANE_COLUMNS,
    NULL,
    PLACE,
    Lane,
)
from pinchpoint.importers.kineto.reading.scanner import ScannerName, compiled_nesting
from pinchpoint.trace.arrays import Array, of_rows

_BEGIN = ord("B")
_SPAN_LANES = (Lane.HOST, Lane.API, Lane.DEVICE, Lane.SYNC)


class Marks(NamedTuple):
    """Begin and end events, of each place together and in order of time."""

    place: Array
    name: Array  # ABSENT: none
    begins: Array  # bool


def join_pairs(columns: Columns, scanner: ScannerName) -> int:
    """Move pairs to the lanes of their categories; how many events had no partner."""
    count = columns.rows(Lane.PAIR)
    if not count:
        return 0
    start, place, name, phase, event = (
        columns.take_sparse(Lane.PAIR, c) for c in ("start", PLACE, "name", "phase", "event")
    )
    order = np.lexsort((start, place))  # of equal times the order of the file
    marks = Marks(place[order], name[order], phase[order] == _BEGIN)
    begin, end = (order[found] for found in matched(marks, scanner))
    by_event = np.argsort(event[begin])
    taken = {"start": start, PLACE: place, "name": name, "event": event}
    columns.append(_complete(columns, taken, begin[by_event], end[by_event]))
    return count - 2 * len(begin)


def matched(marks: Marks, scanner: ScannerName = "plain") -> tuple[Array, Array]:
    """Positions of begins and of the ends that belong to them."""
    if scanner == "native":
        begin, end = compiled_nesting.by_name(marks)
        return begin, end
    begin, end = _nested(marks)
    wrong = (marks.name[end] != ABSENT) & (marks.name[end] != marks.name[begin])
    if not wrong.any():
        return begin, end
    odd_places = np.unique(marks.place[begin[wrong]])
    good = ~np.isin(marks.place[begin], odd_places)
    rows = np.flatnonzero(np.isin(marks.place, odd_places))
    odd = [rows[found] for found in _by_name(Marks(*(column[rows] for column in marks)))]
    return np.concatenate((begin[good], odd[0])), np.concatenate((end[good], odd[1]))


def _nested(marks: Marks) -> tuple[Array, Array]:
    """What belongs together by depth alone: on one depth, begins and ends take turns."""
    places = np.cumsum(np.append(True, marks.place[1:] != marks.place[:-1])) - 1
    first = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
    change = np.where(marks.begins, 1, -1)
    level = np.cumsum(change)
    level -= (level[first] - change[first])[places]
    apart = places * (2 * len(level) + 1)  # so that each place has its own lowest level
    lowest = np.minimum.accumulate(np.minimum(level, 0) - apart) + apart
    before = np.append(0, lowest[:-1])
    before[first] = 0
    kept = np.flatnonzero(lowest == before)  # the others end what was never begun
    depth = (level - lowest)[kept] + ~marks.begins[kept]
    order = kept[np.lexsort((kept, depth, places[kept]))]
    depth_of = np.zeros(len(level), np.int64)
    depth_of[kept] = depth
    pair = marks.begins[order[:-1]] & ~marks.begins[order[1:]]
    pair &= places[order[:-1]] == places[order[1:]]
    pair &= depth_of[order[:-1]] == depth_of[order[1:]]
    return order[:-1][pair], order[1:][pair]


def _by_name(marks: Marks) -> tuple[Array, Array]:
    """The same one event after another, where an end closes more than the innermost begin.

    The compiled form is in ``_nest.pyx``.
    """
    pairs: list[tuple[int, int]] = []
    opened: list[int] = []
    names: Counter[int] = Counter()
    place = None
    name_of, begins, place_of = (c.tolist() for c in (marks.name, marks.begins, marks.place))
    for i, name in enumerate(name_of):
        if place_of[i] != place:
            place = place_of[i]
            opened.clear()
            names.clear()
        if begins[i]:
            opened.append(i)
            names[name] += 1
        elif name == ABSENT or names[name]:
            while opened:
                top = opened.pop()
                names[name_of[top]] -= 1
                if name in (ABSENT, name_of[top]):
                    pairs.append((top, i))
                    break
    found = np.array(pairs, np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _complete(
    columns: Columns, taken: dict[str, Array], begin: Array, end: Array
) -> dict[Lane, dict[str, Array]]:
    """Columns of complete events by lane; what the begin does not say, the end may.

    One column after the other: they may be most of what is held.
    """
    duration = taken["start"][end] - taken["start"][begin]

    def joined(column: str) -> Array:
        values = taken.pop(column) if column in taken else columns.take_sparse(Lane.PAIR, column)
        absent = ABSENT if values.dtype == np.int32 else NULL
        if values.strides == (0,) and len(begin) and values[0] == absent:
            return np.broadcast_to(values[0], begin.shape)
        return np.where(values[begin] == absent, values[end], values[begin])

    category = joined("category")
    known = {text.encode(): lane for text, lane in CATEGORY_LANES.items()}
    lanes = [known.get(text, Lane.HOST) for text in columns.texts]
    lane_of = np.array([n if n in _SPAN_LANES else Lane.HOST for n in (*lanes, Lane.HOST)])
    rows = {each: np.flatnonzero(lane_of[category] == each) for each in _SPAN_LANES}
    nothing = np.zeros(0, np.int64)
    out = {each: dict.fromkeys((*of, "event"), nothing) for each, of in LANE_COLUMNS.items()}

    def put(column: str, values: Array) -> None:
        for each in _SPAN_LANES:
            if column in out[each]:
                out[each][column] = of_rows(values, rows[each])

    put("category", category)
    put("duration", duration)
    put("link", np.broadcast_to(np.int64(NULL), begin.shape))  # XLA writes no pairs
    for column in (*LANE_COLUMNS[Lane.PAIR], "event"):
        if column not in ("category", "phase"):
            put(column, joined(column))
    return out


__all__ = ["Marks", "join_pairs", "matched"]
