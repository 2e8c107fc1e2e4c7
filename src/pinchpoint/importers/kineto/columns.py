"""The columns of a whole file, ready to become tables."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from pinchpoint.importers.kineto.reading.fields import (
    ABSENT,
    ARGUMENTS,
    COLUMNS,
    FORMS,
    INTERNED,
    LANE_COLUMNS,
    NULL,
    PLACE,
    Lane,
)
from pinchpoint.importers.kineto.reading.lenient import value_text
from pinchpoint.importers.kineto.reading.scan import Chunk, Place, Scanned
from pinchpoint.trace import Names
from pinchpoint.trace.arrays import Array, Mask, of_rows

_MOST_ARE_SEEN_IN = 65_536  # rows: a step or more, and the next ones repeat it
_BLANKS = b" \t\r\n"
_NARROW_NULL = -(2**31)  # in columns that a scanner keeps in 32 bits
_INTERNED_COLUMNS = {c for c, form in zip(COLUMNS, FORMS, strict=True) if form in INTERNED}


_Named = Callable[[str], bool]  # of a name, whether it is of a kind


class Told(NamedTuple):
    """What events say in their arguments, by their position in the file, which rises."""

    event: Array
    arguments: Array  # positions in ``texts``; ABSENT: none
    link: Array  # what stands as ``NO_LINK`` there; NULL: nothing does
    texts: list[bytes]


class Columns:
    """Joins the chunks of a scan, column by column; each column can be taken once."""

    def __init__(self, scanned: Scanned) -> None:
        self._chunks = list(scanned.chunks)
        self.texts, self._maps = _joined(scanned.texts)
        self.places, self._place_maps = _joined(scanned.places)
        self.events = sum(chunk.events for chunk, _ in scanned.chunks)
        self.raw = _joined_raw(scanned)
        self.untimed = sum(chunk.untimed for chunk, _ in scanned.chunks)
        self.unread = sum(chunk.unread for chunk, _ in scanned.chunks)
        self.left_out = scanned.left_out
        self._rows = self._count_rows()

    def _count_rows(self) -> dict[Lane, int]:
        return {
            lane: sum(len(chunk.lanes[lane].get("event", ())) for chunk, _ in self._chunks)
            for lane in LANE_COLUMNS
        }

    def said(self) -> tuple[Array, Array, Array]:
        """Event, arguments and link of the rows of the host's lane; taken once."""
        event = self.take(Lane.HOST, "event", keep=True)
        arguments, link = self.take(Lane.HOST, ARGUMENTS), self.take(Lane.HOST, "link")
        if (event[1:] > event[:-1]).all():
            return event, arguments, link
        order = np.argsort(event, kind="stable")  # joined pairs come last
        return event[order], arguments[order], link[order]

    def move_host_rows(self, lane_of_place: Array) -> None:
        """Move rows of the host's lane to the lane of their place; drop those of IGNORED."""
        for chunk, scanner in self._chunks:
            lane = lane_of_place[self._place_maps[scanner][chunk.lanes[Lane.HOST][PLACE]]]
            _move(chunk, np.flatnonzero(lane == Lane.DEVICE), Lane.DEVICE, lane == Lane.HOST)
        self._rows = self._count_rows()

    def move_named(
        self, to: Lane, is_of: Callable[[str], bool], sign: Callable[[str], bool]
    ) -> None:
        """Move rows of the host's lane without a category, by their names, to another lane.

        Nothing is moved without a name that is a sign of the lane.
        """
        texts = [value_text(text) for text in self.texts]
        if not any(map(sign, texts)):
            return
        named = np.array([*map(is_of, texts), False])
        without = np.array([*(not text for text in texts), True])
        for chunk, scanner in self._chunks:
            host = chunk.lanes[Lane.HOST]
            category = self._maps[scanner][host["category"]]
            theirs = named[self._maps[scanner][host["name"]]] & without[category]
            _move(chunk, np.flatnonzero(theirs), to, ~theirs)
        self._rows = self._count_rows()

    def append(self, lanes: dict[Lane, dict[str, Array]]) -> None:
        """Add rows whose interned columns and events are those of the whole file."""
        for columns in lanes.values():
            columns["event"] = columns["event"] - self.events  # counted from the added chunk
        for maps, items in ((self._maps, self.texts), (self._place_maps, self.places)):
            maps.append(np.array([*range(len(items)), ABSENT], np.int32))
        self._chunks.append((Chunk(lanes, 0, []), len(self._maps) - 1))
        self._rows = self._count_rows()

    def rows(self, lane: Lane) -> int:
        """Events in the lane."""
        return self._rows[lane]

    def take_or(self, lane: Lane, column: str, other: str) -> Array:
        """A column, with the values of another spelling of it where it has none."""
        values = self.take_sparse(lane, column)
        if self._is_empty(lane, other):
            return values
        absent = ABSENT if column in _INTERNED_COLUMNS else NULL
        instead = self.take(lane, other)
        return np.where(values == absent, instead, values)

    def take_sparse(self, lane: Lane, column: str) -> Array:
        """A column to be read only: one cell for all its rows where nothing was found."""
        if column == "event" or not self._is_empty(lane, column):
            return self.take(lane, column)
        for chunk, _ in self._chunks:
            del chunk.lanes[lane][column]
        interned = column in _INTERNED_COLUMNS or column == PLACE
        nothing = np.int32(ABSENT) if interned else np.int64(NULL)
        return np.broadcast_to(nothing, (self._rows[lane],))

    def _is_empty(self, lane: Lane, column: str) -> bool:
        """Whether a scanner found nothing at all; cheap, and may miss it."""
        values = (ABSENT,) if column in _INTERNED_COLUMNS else (NULL, _NARROW_NULL)
        pieces = (chunk.lanes[lane][column] for chunk, _ in self._chunks)
        return all(piece.strides == (0,) and piece[0] in values for piece in pieces if len(piece))

    def take(self, lane: Lane, column: str, *, keep: bool = False) -> Array:
        """A column of the lane in file order: int64 with NULL, or interned int32 with ABSENT."""
        interned = column in _INTERNED_COLUMNS or column == PLACE
        maps = self._place_maps if column == PLACE else self._maps
        out = np.empty(self._rows[lane], np.int32 if interned else np.int64)
        at = base = 0
        for chunk, scanner in self._chunks:
            pieces = chunk.lanes[lane]
            piece = pieces[column] if keep else pieces.pop(column)
            part = out[at : at + len(piece)]
            if interned:
                np.take(maps[scanner], piece, out=part, mode="wrap")
            elif column == "event":
                np.add(piece, base, out=part)
            else:
                part[:] = piece
                if piece.dtype == np.int32:
                    part[piece == _NARROW_NULL] = NULL
            at += len(piece)
            base += chunk.events
        return out


Item = TypeVar("Item", bytes, Place)


def _joined(interned: list[list[Item]]) -> tuple[list[Item], list[Array]]:
    """One list of all that is interned, and for each scanner the positions of its own there.

    The last entry of each map is ABSENT, so that a position of -1 stays absent.
    """
    positions: dict[Item, int] = {}
    maps = []
    for own in interned:
        there: list[int] = [positions.setdefault(item, len(positions)) for item in own]
        maps.append(np.array([*there, ABSENT], np.int32))
    return list(positions), maps


def _by_cell(column: Array, answer: Callable[[Array], Array]) -> Array:
    """What is said of each cell; once where one cell stands for all rows."""
    if column.strides == (0,) and len(column):
        return np.broadcast_to(answer(column[:1])[0], column.shape)
    return answer(column)


def _move(chunk: Chunk, rows: Array, to: Lane, stay: Mask) -> None:
    """Rows of the host's lane to another one, and of the host's only those that stay."""
    host = chunk.lanes[Lane.HOST]
    lane = chunk.lanes[to]
    for name, piece in lane.items():
        absent = np.int64(ABSENT if name in _INTERNED_COLUMNS else NULL)
        moved = of_rows(host.get(name, np.broadcast_to(absent, stay.shape)), rows)
        lane[name] = _one_after_the_other(_widened(piece), _widened(moved))
    here = np.flatnonzero(stay)
    chunk.lanes[Lane.HOST] = {name: of_rows(piece, here) for name, piece in host.items()}


def _widened(piece: Array) -> Array:
    if piece.dtype != np.int32:
        return _by_cell(piece, lambda cells: cells.astype(np.int64, copy=False))
    return _by_cell(piece, lambda cells: np.where(cells == _NARROW_NULL, np.int64(NULL), cells))


def _one_after_the_other(first: Array, second: Array) -> Array:
    if not len(first) or not len(second):
        return second if len(second) else first
    if first.strides == second.strides == (0,) and first[0] == second[0]:
        return np.broadcast_to(first[0], (len(first) + len(second),))
    return np.concatenate((first, second))


def _joined_raw(scanned: Scanned) -> list[tuple[int, bytes]]:
    raw, base = [], 0
    for chunk, _ in scanned.chunks:
        raw += [(event + base, text) for event, text in chunk.raw]
        base += chunk.events
    return raw


class Interned:
    """Turns interned texts into positions of the trace's names."""

    def __init__(self, texts: list[bytes], names: Names) -> None:
        self.texts = texts
        self._names = names
        self.string = cache(self._string)

    def _string(self, text: int) -> str:
        return value_text(self.texts[text])

    def strings(self, column: Array) -> tuple[Array, Mask]:
        """A column of words as positions in names, and where it is null."""
        return self._mapped(column, lambda used: [self.string(text) for text in used])

    def json(self, column: Array) -> tuple[Array, Mask]:
        """A column of JSON values as positions of their shortest spelling, and where null."""
        return self._mapped(column, lambda used: _shortest_of([self.texts[t] for t in used]))

    def renamed(self, column: Array, rename: Callable[[str], str]) -> Array:
        """A column of words, each changed by ``rename``."""
        return self._mapped(column, lambda used: [rename(self.string(t)) for t in used])[0]

    def chosen(self, column: Array, choose: Callable[[str], int]) -> Array:
        """For each row what ``choose`` says about its word; absent words are empty ones."""
        table = np.empty(len(self.texts) + 1, np.int64)
        table[-1] = choose("")
        for text in used_in_order(column, len(self.texts)):
            table[text] = choose(self.string(text))
        return table[column]

    def chosen_by_two(
        self, column: Array, other: Array, choose: Callable[[str, str], int]
    ) -> Array:
        """For each row what ``choose`` says about its two words, the first of few; uint8."""
        words = np.flatnonzero(np.bincount(column + 1, minlength=1)) - 1
        place = np.zeros(len(self.texts) + 1, np.int64)
        place[words] = np.arange(len(words))
        width = len(self.texts) + 1
        pair = place[column] * width + other + 1
        table = np.zeros(max(1, len(words)) * width, np.uint8)
        for used in np.flatnonzero(np.bincount(pair, minlength=1)).tolist():
            first, second = int(words[used // width]), used % width - 1
            table[used] = choose(self._word(first), self._word(second))
        return table[pair]

    def _word(self, text: int) -> str:
        return "" if text == ABSENT else self.string(text)

    def _mapped(self, column: Array, spell: Callable[[list[int]], list[str]]) -> tuple[Array, Mask]:
        table = np.zeros(len(self.texts) + 1, np.int32)
        used = used_in_order(column[:1] if column.strides == (0,) else column, len(self.texts))
        table[used] = self._names.ids_of(spell(used))
        return _by_cell(column, lambda cells: table[cells]), is_null(column, ABSENT)


def used_in_order(column: Array, values: int) -> list[int]:
    """Which of the numbers below ``values`` occur in a column, in order of their first row."""
    order = _in_order(column[:_MOST_ARE_SEEN_IN], values)
    seen = np.zeros(values + 1, np.bool_)
    seen[[*order, ABSENT]] = True
    later = column[_MOST_ARE_SEEN_IN:]
    return order + _in_order(later[~seen[later]], values)


def _in_order(column: Array, values: int) -> list[int]:
    first = np.full(values + 1, len(column), np.int32)
    rows = np.arange(len(column) - 1, -1, -1, dtype=np.int32)
    first[column[::-1]] = rows  # of equal places the last one stays
    used = np.flatnonzero(first[:-1] < len(column))
    order: list[int] = used[np.argsort(first[used], kind="stable")].tolist()
    return order


def _shortest_of(tokens: list[bytes]) -> list[str]:
    """The shortest spelling of each token: all at once if they are numbers and brackets."""
    together = b"\0".join(tokens)
    if b'"' not in together and together.count(b"\0") == len(tokens) - 1:
        texts = together.translate(None, _BLANKS).decode("utf-8", "replace").split("\0")
        if "".join(texts).isprintable():
            return texts
    return [_shortest(token) for token in tokens]


def _shortest(token: bytes) -> str:
    if b'"' not in token:  # numbers and brackets
        text = token.translate(None, _BLANKS).decode("utf-8", "replace")
        if text.isprintable():
            return text
    try:
        token = msgspec.json.format(token, indent=-1)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        token = b" ".join(token.split())
    return value_text(token, escaped=False)


def known(column: Array) -> tuple[Array, Mask]:
    """A column of numbers and where it is null."""
    return column, is_null(column)


def is_null(column: Array, null: int = NULL) -> Mask:
    """Where a column has no value."""
    return _by_cell(column, lambda cells: cells == null)


def known_32(column: Array) -> tuple[Array, Mask]:
    """The same for a column of 32 bits; what does not fit is null."""
    missing = _by_cell(column, lambda cells: (cells < 0) | (cells >= 2**31))
    return _by_cell(
        column, lambda cells: np.where((cells < 0) | (cells >= 2**31), 0, cells)
    ), missing
