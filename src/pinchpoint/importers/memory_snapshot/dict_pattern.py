"""Reads runs of dictionaries that have the same keys, which is what a list of events is.

Opcode by opcode, an event costs some thirty turns of the interpreter. Once one event is known, the
bytes of the next ones differ only in their values, so one regular expression finds a whole event
and its values. What it does not match is left to the general reader, with the same result. The
compiled form reads runs of them into columns; what it leaves, the regular expression reads.
"""

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Ints

try:
    _runs: Any = import_module("pinchpoint.importers.memory_snapshot._runs")
except ImportError:  # not compiled
    _runs = None

MAX_RUN = 1 << 14  # events handed over at once: about what one read of the file holds
MAX_REMEMBERED = 1 << 20  # memo entries looked at; bounds memory

_REFERENCE = rb"(?:h.|j.{4})"
_LONG = b"|".join(b"\\x%02x.{%d}" % (size, size) for size in range(1, 10))
_SHORT_TEXT = b"|".join(b"\\x%02x.{%d}" % (size, size) for size in range(33))
_VALUE = (
    rb"("
    + _REFERENCE
    + rb"|\x8a(?:"
    + _LONG
    + rb")|J.{4}|K.|M..|\x8c(?:"
    + _SHORT_TEXT
    + rb")\x94?"
    rb"|\]\x94?(?:\(" + _REFERENCE + rb"+e|" + _REFERENCE + rb"a)?|N|\x88|\x89)"
)
_REFERENCES = re.compile(rb"h(.)|j(.{4})", re.DOTALL)
_LIST = 0x5D  # opcode EMPTY_LIST
_TEXT = 0x8C  # opcode SHORT_BINUNICODE
_LONG1 = 0x8A  # opcode LONG1
_NUMBERS = {0x4A: True, 0x4B: False, 0x4D: False}  # BININT is signed, BININT1 and 2 are not
_NUMERIC = {*_NUMBERS, _LONG1}
_LEFT_OVER = 16  # events for the regular expression where the compiled form has stopped


@dataclass(frozen=True, eq=False)
class Coded:
    """A column of few distinct values: row i has ``values[index[i]]``."""

    values: list[Any]
    index: Ints

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, row: int) -> Any:
        return self.values[self.index[row]]


Column = list[Any] | Ints | Coded


class DictPattern:
    """A pattern for dictionaries with given keys; ``positions`` are where the memo has each key."""

    def __init__(
        self,
        keys: Sequence[str],
        positions: Sequence[Sequence[int]],
        memo: list[Any],
        finished_list: Callable[[list[Any]], Any],
    ) -> None:
        self.keys = tuple(keys)
        body = b"".join(_any_reference(known) + _VALUE for known in positions)
        self._match = re.compile(rb"\}(\x94?)\(" + body + rb"u", re.DOTALL).match
        self._memo = memo
        self._values = _Values(memo, finished_list)
        self._runs = _compiled(positions)

    def read(self, buffer: bytes, position: int, limit: int) -> tuple[Sequence[Column], int]:
        """Columns of values of the dictionaries from ``position`` on, and where they end."""
        if self._runs is None:
            return self._matched(buffer, position, limit, MAX_RUN)
        memo = self._memo
        value, is_thing, others, named, end = self._runs.read(buffer, position, limit, len(memo))
        if not value.shape[1]:
            return self._matched(buffer, position, limit, _LEFT_OVER)
        things = [memo[one] if type(one) is int else self._values[one][0] for one in others]
        columns = [_column(*each, things) for each in zip(value, is_thing, strict=True)]
        memo.extend(_looked_up([*things, None], named))
        return columns, end

    def _matched(
        self, buffer: bytes, position: int, limit: int, most: int
    ) -> tuple[list[list[Any]], int]:
        found: list[tuple[bytes, ...]] = []
        match = self._match
        while len(found) < most and position <= limit and (event := match(buffer, position)):
            found.append(event.groups())
            position = event.end()
        if not found:
            return [], position
        own_names, *raw = zip(*found, strict=True)
        columns: list[list[Any]] = []
        in_order: list[tuple[tuple[bytes, ...], list[Any]]] = []
        for texts in raw:
            columns.append([])
            if {text[0] for text in texts} <= _NUMERIC:
                columns[-1] = self._values.numbers(texts)
            elif self._values.settled(set(texts)):
                columns[-1] = [self._values[text][0] for text in texts]
            else:
                in_order.append((texts, columns[-1]))
        self._read_in_order(in_order, own_names)
        return columns, position

    def _read_in_order(
        self, columns: list[tuple[tuple[bytes, ...], list[Any]]], own_names: Sequence[bytes]
    ) -> None:
        """Values that get names, or refer to values named earlier in the same run."""
        memo, values = self._memo, self._values
        for row, own_name in enumerate(own_names):
            if own_name:
                memo.append(None)  # the dictionary itself, which nothing refers to
            for texts, column in columns:
                value, named = values[texts[row]]
                column.append(value)
                if named:
                    memo.append(value)


class _Values(dict[bytes, tuple[Any, bool]]):
    """From the bytes that push a value to the value, and whether they put it into the memo."""

    def __init__(self, memo: list[Any], finished_list: Callable[[list[Any]], Any]) -> None:
        super().__init__()
        self._memo = memo
        self._finished_list = finished_list

    def numbers(self, texts: Sequence[bytes]) -> list[int]:
        """A column of integers; long ones are addresses and times, which seldom come again."""
        number = int.from_bytes
        return [
            number(text[2:], "little", signed=True) if text[0] == _LONG1 else self[text][0]
            for text in texts
        ]

    def settled(self, texts: set[bytes]) -> bool:
        """Whether these can be read in any order: none gets a name, none needs a later one."""
        for text in texts:
            reference = _REFERENCES.match(text)
            if reference and _position(reference) >= len(self._memo):
                return False
        return not any(self[text][1] for text in texts)

    def __missing__(self, text: bytes) -> tuple[Any, bool]:
        if len(self) > MAX_REMEMBERED:
            self.clear()
        value = self[text] = self._read(text)
        return value

    def _read(self, text: bytes) -> tuple[Any, bool]:
        kind = text[0]
        if kind == _LONG1:
            return int.from_bytes(text[2:], "little", signed=True), False
        if kind in _NUMBERS:
            return int.from_bytes(text[1:], "little", signed=_NUMBERS[kind]), False
        if kind == _TEXT:
            return text[2 : 2 + text[1]].decode("utf-8", "replace"), len(text) > 2 + text[1]
        if kind == _LIST:
            items = [self._memo[_position(m)] for m in _REFERENCES.finditer(text, 1)]
            return self._finished_list(items), text[1:2] == b"\x94"
        if reference := _REFERENCES.match(text):
            return self._memo[_position(reference)], False
        return {ord("N"): None, 0x88: True, 0x89: False}[kind], False


def _compiled(positions: Sequence[Sequence[int]]) -> Any:
    if _runs is None:
        return None
    widest = max(len(known) for known in positions)
    keys = [[*known, *[-1] * (widest - len(known))] for known in positions]
    return _runs.Runs(np.array(keys, np.int64), MAX_RUN)


def _column(value: Ints, is_thing: Any, things: list[Any]) -> Column:
    if not is_thing.any():
        return value.copy()
    if is_thing.all():
        used, index = _used(value, len(things))
        return Coded([things[row] for row in used], index)
    pairs = zip(value.tolist(), is_thing.tolist(), strict=True)
    return [things[row] if thing else row for row, thing in pairs]


def _used(rows: Ints, count: int) -> tuple[list[int], Ints]:
    """Which of ``count`` rows there are, and the place of each among them."""
    there = np.zeros(count, np.bool_)
    there[rows] = True
    return np.flatnonzero(there).tolist(), (np.cumsum(there) - 1)[rows]


def _looked_up(values: list[Any], rows: Ints) -> list[Any]:
    """``values[row]`` of each row, -1 being the last."""
    known = np.empty(len(values), object)
    known[:] = values
    found: list[Any] = known[rows].tolist()
    return found


def _position(reference: re.Match[bytes]) -> int:
    return int.from_bytes(reference[1] or reference[2], "little")


def _any_reference(positions: Sequence[int]) -> bytes:
    return rb"(?:" + b"|".join(re.escape(_reference(p)) for p in positions) + rb")"


def _reference(position: int) -> bytes:
    if position < 256:
        return b"h" + bytes([position])
    return b"j" + position.to_bytes(4, "little")
