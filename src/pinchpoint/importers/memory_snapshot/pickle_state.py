"""What a pickle that is being read has built so far, and the bounds on it.

Everything that a stream could make grow is counted here: values, names, texts, nesting.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pinchpoint.errors import HostileFile
from pinchpoint.importers.memory_snapshot.dict_pattern import Column, DictPattern

CHUNK_BYTES = 1 << 20  # read at a time
MAX_TEXT_BYTES = 1 << 16  # the longest C++ symbol seen has 12 KB
LOOKAHEAD_BYTES = MAX_TEXT_BYTES + 16  # longer than any opcode with its argument
MAX_INTEGER_BYTES = 16  # addresses and sizes take 8
MAX_STACK = 4_000_000  # values not yet put into a list or dictionary
MAX_KEPT = 4_000_000  # texts, lists and dictionaries that no reducer took away
MAX_KEPT_TEXT_BYTES = 1 << 28  # bounds memory, as MAX_KEPT does
MAX_NAMES_A_ROW = 8  # memo entries for each structure taken away; real files: 2
MAX_KEY, MAX_POSITIONS, MAX_LANES = 32, 4, 16  # of keys that a lane may look for
MAX_IDLE_BYTES = 1 << 28  # read since a reducer last took something away


class Reducer(Protocol):
    """Replaces finished structures by smaller ones; returns its argument to keep it.

    Dictionaries that become rows of the kind ``many`` may come as columns of values instead.
    """

    many: str

    def finished_dict(self, content: dict[Any, Any]) -> Any:
        """What stands for a dictionary that has just been filled."""
        ...

    def finished_dicts(self, keys: tuple[str, ...], columns: Sequence[Column]) -> "Rows":
        """The rows that many dictionaries with the same keys have become; keys as in ``many``."""
        ...

    def finished_list(self, content: list[Any]) -> Any:
        """What stands for a list that has just got its first items."""
        ...


class Rows:
    """Consecutive rows that a reducer has put into its columns; ``end`` is exclusive."""

    __slots__ = ("end", "kind", "start")

    def __init__(self, kind: str, start: int, end: int) -> None:
        self.kind, self.start, self.end = kind, start, end


class OpenDict(dict[Any, Any]):
    """A dictionary that knows its place in the memo, once it has one."""

    __slots__ = ("put",)
    put: int


class OpenList(list[Any]):
    """The same for lists."""

    __slots__ = ("put",)
    put: int


class Truncated(Exception):
    """The stream ended inside a value."""


class PickleState:
    """One reading of one stream. ``read(n)`` gives up to n bytes, and none at the end."""

    def __init__(self, read: Callable[[int], bytes], reducer: Reducer, name: str) -> None:
        self._read, self.reducer, self._name = read, reducer, name
        self._buffer, self.at_end, self.end = b"", False, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: list[Any] = []  # None where a reducer took the value away
        self.kept = self.kept_text = self.idle = self.taken = 0
        self.runs: dict[bytes, Any] = {}
        self.texts: dict[bytes, str] = {}
        self.positions: dict[str, list[int]] = {}  # where the memo has short texts
        self.lane: DictPattern | None = None
        self.lanes: dict[tuple[str, ...], DictPattern | None] = {}

    def refill(self, position: int) -> tuple[bytes, int]:
        """The bytes from ``position`` on, and the last position where an opcode may start."""
        if self.at_end and position >= self.end:
            if position > self.end and self.stack:
                self.stack.pop()  # its argument was cut off
            raise Truncated
        parts = [self._buffer[position:]]
        size = len(parts[0])
        while size <= LOOKAHEAD_BYTES and not self.at_end:
            more = self._read(CHUNK_BYTES)
            self.at_end = not more
            size += len(more)
            parts.append(more)
        self.idle += CHUNK_BYTES
        self._check_bounds()
        self.end = size
        if self.at_end:
            parts.append(bytes(LOOKAHEAD_BYTES))  # opcode 0 is unknown
        self._buffer = b"".join(parts)
        return self._buffer, size - 1 if self.at_end else size - LOOKAHEAD_BYTES

    def _check_bounds(self) -> None:
        if self.idle > MAX_IDLE_BYTES:
            raise self.refused("it goes on for long without holding a recording")
        too_many_names = len(self.memo) > MAX_KEPT + MAX_NAMES_A_ROW * self.taken
        if self.kept > MAX_KEPT or len(self.stack) > MAX_STACK or too_many_names:
            raise self.refused("it holds more values than a recording needs")
        if self.kept_text > MAX_KEPT_TEXT_BYTES:
            raise self.refused("it holds more text than a recording needs")

    def close_what_is_open(self) -> Any:
        """Fill the containers that the end of the stream left open; halves of pairs are lost."""
        while self.marks:
            start = self.marks.pop()
            items, owner = self.stack[start:], self.stack[start - 1] if start else None
            del self.stack[start:]
            if isinstance(owner, OpenDict):
                owner.update(_pairs(items))
            elif isinstance(owner, OpenList):
                owner.extend(items)
        return self.stack[0] if self.stack else None

    def refused(self, why: str) -> HostileFile:
        """The error to raise."""
        return HostileFile(
            f"{self._name}: refused: {why}",
            hint="record the snapshot again; do not trust this file",
        )

    def pop_group(self) -> list[Any]:
        """The values since the last mark, off the stack."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def push_new(self, value: Any) -> None:
        """Push a container that counts as kept until a reducer takes it."""
        self.kept += 1
        self.stack.append(value)

    def replace_top(self, old: Any, new: Any) -> None:
        """What a reducer made of the top of the stack takes its place, in the memo too."""
        if new is old:
            return
        self.idle = 0
        self.taken += 1
        self.kept -= 1
        put = getattr(old, "put", None)
        if put is not None:
            self.memo[put] = None if type(new) is Rows else new
        if type(old) is OpenDict:
            self._share_empty_lists(old)
            if type(new) is Rows and new.kind == self.reducer.many:
                self._choose_lane(tuple(old))
        self.stack.pop()
        self.push_rows(new) if type(new) is Rows else self.stack.append(new)

    def name_top(self, position: int) -> None:
        """Put the top of the stack into the memo."""
        value = self.stack[-1]
        if type(value) is OpenDict or type(value) is OpenList:
            value.put = position
        elif type(value) is str and len(value) <= MAX_KEY:
            known = self.positions.setdefault(value, [])
            if len(known) < MAX_POSITIONS:
                known.append(position)
        if position == len(self.memo):
            self.memo.append(value)
        else:
            self.memo[position] = value

    def push_rows(self, rows: Rows) -> None:
        """Push rows, or add them to those on top if they follow them."""
        before = self.stack[-1] if self.stack else None
        if type(before) is Rows and before.kind == rows.kind and before.end == rows.start:
            before.end = rows.end
        else:
            self.stack.append(rows)

    def _choose_lane(self, keys: tuple[str, ...]) -> None:
        if keys not in self.lanes and len(self.lanes) < MAX_LANES:
            known = [self.positions.get(key, []) for key in keys]
            finished_list = self.reducer.finished_list
            self.lanes[keys] = (
                DictPattern(keys, known, self.memo, finished_list) if all(known) else None
            )
        self.lane = self.lanes.get(keys)

    def _share_empty_lists(self, taken: dict[Any, Any]) -> None:
        for value in taken.values():
            if type(value) is OpenList and not value:
                self.kept -= 1
                put = getattr(value, "put", None)
                if put is not None:
                    self.memo[put] = _NOTHING


_NOTHING: list[Any] = []


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=False))
