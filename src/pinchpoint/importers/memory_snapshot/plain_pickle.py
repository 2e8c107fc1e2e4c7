"""Reads a pickle of plain data opcode by opcode; nothing in it can run, name or rebuild anything.

Only opcodes that push numbers, texts, None, tuples, lists and dictionaries are known. GLOBAL,
REDUCE, BUILD and their kin are refused by not being there. A :class:`Reducer` turns each finished
dictionary or list into something smaller at once, so a recording of ten million events never
exists as ten million dictionaries, and every structure that could grow is bounded.

The stream may end early: what was whole until then is returned.
"""

import re
import struct
from collections.abc import Callable
from typing import Any, Protocol

from pinchpoint.errors import HostileFile
from pinchpoint.importers.memory_snapshot.lane import Lane

CHUNK_BYTES = 1 << 20
MAX_TEXT_BYTES = 1 << 16  # the longest C++ symbol seen has 12 KB
LOOKAHEAD_BYTES = MAX_TEXT_BYTES + 16  # longer than any opcode with its argument
MAX_INTEGER_BYTES = 16
MAX_OPEN = 64  # real snapshots nest 7 deep
MAX_STACK = 4_000_000  # values not yet put into a list or dictionary
MAX_KEPT = 4_000_000  # texts, lists and dictionaries that no reducer took away
MAX_KEPT_TEXT_BYTES = 1 << 28
MAX_NAMES_A_ROW = 8  # memo entries for each structure taken away; real files: 2
MAX_KEY, MAX_POSITIONS, MAX_LANES = 32, 4, 16  # of keys that a lane may look for
MAX_IDLE_BYTES = 1 << 28  # read since a reducer last took something away

_RUN = re.compile(rb"(?:h.|j.{4})+e", re.DOTALL)  # references to earlier values, then APPENDS
_REFERENCE = re.compile(rb"h(.)|j(.{4})", re.DOTALL)


class Reducer(Protocol):
    """Replaces finished structures by smaller ones; returns its argument to keep it.

    Dictionaries that become rows of the kind ``many`` may come as columns of values instead.
    """

    many: str

    def finished_dict(self, content: dict[Any, Any]) -> Any:
        """What stands for a dictionary that has just been filled."""
        ...

    def finished_dicts(self, keys: tuple[str, ...], columns: list[list[Any]]) -> "Rows":
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


class _Dict(dict[Any, Any]):
    """A dictionary that knows its place in the memo, once it has one."""

    __slots__ = ("put",)
    put: int


class _List(list[Any]):
    """The same for lists."""

    __slots__ = ("put",)
    put: int


_MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, struct.error)


class _Truncated(Exception):
    """The stream ended inside a value."""


class PlainPickle:
    """One reading of one stream. ``read(n)`` gives up to n bytes, and none at the end."""

    def __init__(self, read: Callable[[int], bytes], reducer: Reducer, name: str) -> None:
        self._read, self._reducer, self._name = read, reducer, name
        self._buffer, self._at_end, self._end = b"", False, 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: list[Any] = []  # None where a reducer took the value away
        self._kept = self._kept_text = self._idle = self._taken = 0
        self._runs: dict[bytes, Any] = {}
        self._texts: dict[bytes, str] = {}
        self._positions: dict[str, list[int]] = {}  # where the memo has short texts
        self._lane: Lane | None = None
        self._lanes: dict[tuple[str, ...], Lane | None] = {}

    def load(self) -> tuple[Any, bool]:
        """The value and whether the pickle was complete; HostileFile if it is not plain data."""
        try:
            self._interpret()
        except _Truncated:
            return self._close_what_is_open(), False
        except _MALFORMED:
            raise self._refused("it is no well-formed pickle of plain data") from None
        if self._marks or len(self._stack) != 1:
            raise self._refused("it ends with values left over")
        return self._stack[0], True

    def _interpret(self) -> None:
        stack, memo, handlers = self._stack, self._memo, _HANDLERS
        buffer, position, limit = b"", 0, -1
        while True:
            if position > limit:
                buffer, limit = self._refill(position)
                position = 0
            opcode = buffer[position]
            if opcode == 0x68:  # BINGET
                stack.append(memo[buffer[position + 1]])
                position += 2
            elif opcode == 0x4A:  # BININT
                four = buffer[position + 1 : position + 5]
                stack.append(int.from_bytes(four, "little", signed=True))
                position += 5
            elif opcode == 0x8A:  # LONG1
                end = position + 2 + buffer[position + 1]
                stack.append(int.from_bytes(buffer[position + 2 : end], "little", signed=True))
                position = end
            elif opcode == 0x4B:  # BININT1
                stack.append(buffer[position + 1])
                position += 2
            elif opcode == 0x2E and position < self._end:  # STOP
                return
            elif opcode in handlers:
                position = handlers[opcode](self, buffer, position + 1)
            elif self._at_end and position >= self._end:
                raise _Truncated
            else:
                raise self._unknown(opcode)

    def _refill(self, position: int) -> tuple[bytes, int]:
        """The bytes from ``position`` on, and the last position where an opcode may start."""
        if self._at_end and position >= self._end:
            if position > self._end and self._stack:
                self._stack.pop()  # its argument was cut off
            raise _Truncated
        parts = [self._buffer[position:]]
        size = len(parts[0])
        while size <= LOOKAHEAD_BYTES and not self._at_end:
            more = self._read(CHUNK_BYTES)
            self._at_end = not more
            size += len(more)
            parts.append(more)
        self._idle += CHUNK_BYTES
        self._check_bounds()
        self._end = size
        if self._at_end:
            parts.append(bytes(LOOKAHEAD_BYTES))  # opcode 0 is unknown
        self._buffer = b"".join(parts)
        return self._buffer, size - 1 if self._at_end else size - LOOKAHEAD_BYTES

    def _check_bounds(self) -> None:
        if self._idle > MAX_IDLE_BYTES:
            raise self._refused("it goes on for long without holding a recording")
        too_many_names = len(self._memo) > MAX_KEPT + MAX_NAMES_A_ROW * self._taken
        if self._kept > MAX_KEPT or len(self._stack) > MAX_STACK or too_many_names:
            raise self._refused("it holds more values than a recording needs")
        if self._kept_text > MAX_KEPT_TEXT_BYTES:
            raise self._refused("it holds more text than a recording needs")

    def _close_what_is_open(self) -> Any:
        """Fill the containers that the end of the stream left open; halves of pairs are lost."""
        while self._marks:
            start = self._marks.pop()
            items, owner = self._stack[start:], self._stack[start - 1] if start else None
            del self._stack[start:]
            if isinstance(owner, _Dict):
                owner.update(_pairs(items))
            elif isinstance(owner, _List):
                owner.extend(items)
        return self._stack[0] if self._stack else None

    def _refused(self, why: str) -> HostileFile:
        return HostileFile(
            f"{self._name}: refused: {why}",
            hint="record the snapshot again; do not trust this file",
        )

    def _unknown(self, opcode: int) -> HostileFile:
        what = _FORBIDDEN.get(opcode)
        if what:
            return self._refused(f"it asks to {what}; a memory snapshot never does")
        return self._refused(f"opcode {opcode:#04x} has no place in a pickle of plain data")

    def _pop_group(self) -> list[Any]:
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _push_new(self, value: Any) -> None:
        self._kept += 1
        self._stack.append(value)

    def _replace_top(self, old: Any, new: Any) -> None:
        if new is old:
            return
        self._idle = 0
        self._taken += 1
        self._kept -= 1
        put = getattr(old, "put", None)
        if put is not None:
            self._memo[put] = None if type(new) is Rows else new
        if type(old) is _Dict:
            self._share_empty_lists(old)
            if type(new) is Rows and new.kind == self._reducer.many:
                self._choose_lane(tuple(old))
        self._stack.pop()
        self._push_rows(new) if type(new) is Rows else self._stack.append(new)

    def _push_rows(self, rows: Rows) -> None:
        before = self._stack[-1] if self._stack else None
        if type(before) is Rows and before.kind == rows.kind and before.end == rows.start:
            before.end = rows.end
        else:
            self._stack.append(rows)

    def _choose_lane(self, keys: tuple[str, ...]) -> None:
        if keys not in self._lanes and len(self._lanes) < MAX_LANES:
            known = [self._positions.get(key, []) for key in keys]
            finished_list = self._reducer.finished_list
            self._lanes[keys] = Lane(keys, known, self._memo, finished_list) if all(known) else None
        self._lane = self._lanes.get(keys)

    def _share_empty_lists(self, taken: dict[Any, Any]) -> None:
        for value in taken.values():
            if type(value) is _List and not value:
                self._kept -= 1
                put = getattr(value, "put", None)
                if put is not None:
                    self._memo[put] = _NOTHING


_NOTHING: list[Any] = []


def _pairs(items: list[Any]) -> dict[Any, Any]:
    return dict(zip(items[::2], items[1::2], strict=False))


Handler = Callable[[PlainPickle, bytes, int], int]
# Handlers: called with the position after the opcode, return the position of the next one.


def _mark(p: PlainPickle, buffer: bytes, at: int) -> int:
    if len(p._marks) >= MAX_OPEN:
        raise p._refused("it is nested deeper than any recording")
    owner = p._stack[-1] if p._stack else None
    if type(owner) is _List and not owner and (run := _RUN.match(buffer, at)):
        text = run.group()
        known = p._runs.get(text)
        if known is not None:
            p._replace_top(owner, known)
            return run.end()
        owner.extend(_resolve(p._memo, text))
        new = p._reducer.finished_list(owner)
        if new is not owner and len(p._runs) < MAX_KEPT:
            p._runs[text] = new
        p._replace_top(owner, new)
        return run.end()
    p._marks.append(len(p._stack))
    return at


def _resolve(memo: list[Any], run: bytes) -> list[Any]:
    found = (int.from_bytes(a or b, "little") for a, b in _REFERENCE.findall(run))
    return [memo[position] for position in found]


def _set_items(p: PlainPickle, _: bytes, at: int) -> int:
    items = p._pop_group()
    return _fill_dict(p, items, at)


def _set_item(p: PlainPickle, _: bytes, at: int) -> int:
    value = p._stack.pop()
    key = p._stack.pop()
    return _fill_dict(p, [key, value], at)


def _fill_dict(p: PlainPickle, items: list[Any], at: int) -> int:
    target = p._stack[-1]
    if type(target) is not _Dict or len(items) % 2:
        raise ValueError
    target.update(zip(items[::2], items[1::2], strict=True))
    p._replace_top(target, p._reducer.finished_dict(target))
    return at


def _appends(p: PlainPickle, _: bytes, at: int) -> int:
    return _fill_list(p, p._pop_group(), at)


def _append(p: PlainPickle, _: bytes, at: int) -> int:
    return _fill_list(p, [p._stack.pop()], at)


def _fill_list(p: PlainPickle, items: list[Any], at: int) -> int:
    target = p._stack[-1]
    if type(target) is not _List:
        raise ValueError
    fresh = not target
    target.extend(items)
    if fresh:
        p._replace_top(target, p._reducer.finished_list(target))
    return at


def _empty_dict(p: PlainPickle, buffer: bytes, at: int) -> int:
    if p._lane is not None:
        columns, end = p._lane.read(buffer, at - 1, p._end)
        if columns:
            p._idle = 0
            p._taken += len(columns[0])
            p._push_rows(p._reducer.finished_dicts(p._lane.keys, columns))
            return end
    p._push_new(_Dict())
    return at


def _empty_list(p: PlainPickle, _: bytes, at: int) -> int:
    p._push_new(_List())
    return at


def _tuple_of(size: int | None) -> Handler:
    def push(p: PlainPickle, _: bytes, at: int) -> int:
        if size is None:
            items = p._pop_group()
        else:
            items = p._stack[len(p._stack) - size :]
            del p._stack[len(p._stack) - size :]
        p._push_new(tuple(items))
        return at

    return push


def _constant(value: Any) -> Handler:
    def push(p: PlainPickle, _: bytes, at: int) -> int:
        p._stack.append(value)
        return at

    return push


def _number(layout: str) -> Handler:
    one = struct.Struct(layout)

    def push(p: PlainPickle, buffer: bytes, at: int) -> int:
        p._stack.append(one.unpack_from(buffer, at)[0])
        return at + one.size

    return push


def _text(length_bytes: int) -> Handler:
    def push(p: PlainPickle, buffer: bytes, at: int) -> int:
        start = at + length_bytes
        size = int.from_bytes(buffer[at:start], "little")
        if size > MAX_TEXT_BYTES:
            raise p._refused(f"it holds a text of {size:,} bytes")
        end = start + size
        text = buffer[start:end]
        known = p._texts.get(text)
        if known is None:
            p._kept_text += size
            p._kept += 1
            known = p._texts[text] = text.decode("utf-8", "replace")
        p._stack.append(known)
        return end

    return push


def _get_long(p: PlainPickle, buffer: bytes, at: int) -> int:
    if at + 4 > p._end:
        raise _Truncated
    p._stack.append(p._memo[int.from_bytes(buffer[at : at + 4], "little")])
    return at + 4


def _put(p: PlainPickle, position: int) -> None:
    value = p._stack[-1]
    if type(value) is _Dict or type(value) is _List:
        value.put = position
    elif type(value) is str and len(value) <= MAX_KEY and position < MAX_KEPT:
        known = p._positions.setdefault(value, [])
        if len(known) < MAX_POSITIONS:
            known.append(position)
    if position == len(p._memo):
        p._memo.append(value)
    else:
        p._memo[position] = value


def _memoize(p: PlainPickle, _: bytes, at: int) -> int:
    _put(p, len(p._memo))
    return at


def _put_short(p: PlainPickle, buffer: bytes, at: int) -> int:
    _put(p, buffer[at])
    return at + 1


def _put_long(p: PlainPickle, buffer: bytes, at: int) -> int:
    if at + 4 > p._end:
        raise _Truncated
    _put(p, int.from_bytes(buffer[at : at + 4], "little"))
    return at + 4


def _skip(size: int) -> Handler:
    return lambda p, buffer, at: at + size


def _long4(p: PlainPickle, buffer: bytes, at: int) -> int:
    size = int.from_bytes(buffer[at : at + 4], "little")
    if size > MAX_INTEGER_BYTES:
        raise p._refused(f"it holds an integer of {size:,} bytes")
    end = at + 4 + size
    p._stack.append(int.from_bytes(buffer[at + 4 : end], "little", signed=True))
    return end


_HANDLERS: dict[int, Handler] = {
    0x80: _skip(1),  # PROTO
    0x95: _skip(8),  # FRAME
    0x28: _mark,
    0x94: _memoize,
    0x71: _put_short,
    0x72: _put_long,
    0x6A: _get_long,
    0x7D: _empty_dict,
    0x5D: _empty_list,
    0x75: _set_items,
    0x73: _set_item,
    0x65: _appends,
    0x61: _append,
    0x29: _tuple_of(0),
    0x85: _tuple_of(1),
    0x86: _tuple_of(2),
    0x87: _tuple_of(3),
    0x74: _tuple_of(None),
    0x4E: _constant(None),
    0x88: _constant(True),
    0x89: _constant(False),
    0x4D: _number("<H"),  # BININT2
    0x47: _number(">d"),  # BINFLOAT
    0x8B: _long4,
    0x8C: _text(1),
    0x58: _text(4),
    0x8D: _text(8),
}
_FORBIDDEN = {
    0x63: "load code (GLOBAL)",
    0x93: "load code (STACK_GLOBAL)",
    0x52: "call a function (REDUCE)",
    0x62: "rebuild an object (BUILD)",
    0x69: "create an object (INST)",
    0x6F: "create an object (OBJ)",
    0x81: "create an object (NEWOBJ)",
    0x92: "create an object (NEWOBJ_EX)",
    0x50: "load a persistent object (PERSID)",
    0x51: "load a persistent object (BINPERSID)",
    0x82: "load code (EXT1)",
    0x83: "load code (EXT2)",
    0x84: "load code (EXT4)",
}
