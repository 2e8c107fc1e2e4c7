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
from typing import Any

from pinchpoint.errors import HostileFile
from pinchpoint.importers.memory_snapshot.pickle_state import (
    MAX_INTEGER_BYTES,
    MAX_TEXT_BYTES,
    OpenDict,
    OpenList,
    PickleState,
    Reducer,
    Truncated,
)
from pinchpoint.regex import regex

MAX_OPEN = 64  # real snapshots nest 7 deep

_RUN = regex(rb"(?:h.|j.{4})+e", re.DOTALL)  # references to earlier values, then APPENDS
_REFERENCE = regex(rb"h(.)|j(.{4})", re.DOTALL)
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, struct.error)


def load_plain(read: Callable[[int], bytes], reducer: Reducer, name: str) -> tuple[Any, bool]:
    """The pickled value and whether the stream was complete.

    ``read(n)`` gives up to n bytes, and none at the end; ``name`` is for messages. HostileFile if
    the stream is no pickle of plain data, or holds more than a recording needs.
    """
    state = PickleState(read, reducer, name)
    try:
        try:
            _interpret(state)
        except Truncated:
            return state.close_what_is_open(), False
    except MALFORMED:  # also of the half that was open, where a dictionary may stand as a key
        raise state.refused("it is no well-formed pickle of plain data") from None
    if state.marks or len(state.stack) != 1:
        raise state.refused("it ends with values left over")
    return state.stack[0], True


def _interpret(state: PickleState) -> None:
    stack, memo = state.stack, state.memo
    buffer, position, limit = b"", 0, -1
    while True:
        if position > limit:
            buffer, limit = state.refill(position)
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
        elif opcode == 0x2E and position < state.end:  # STOP
            return
        elif opcode in _HANDLERS:
            position = _HANDLERS[opcode](state, buffer, position + 1)
        elif state.at_end and position >= state.end:
            raise Truncated
        else:
            raise _unknown(state, opcode)


def _unknown(state: PickleState, opcode: int) -> HostileFile:
    what = _FORBIDDEN.get(opcode)
    if what:
        return state.refused(f"it asks to {what}; a memory snapshot never does")
    return state.refused(f"opcode {opcode:#04x} has no place in a pickle of plain data")


# Handlers are called with the position after the opcode and return that of the next one.
Handler = Callable[[PickleState, bytes, int], int]


def _mark(state: PickleState, buffer: bytes, at: int) -> int:
    if len(state.marks) >= MAX_OPEN:
        raise state.refused("it is nested deeper than any recording")
    owner = state.stack[-1] if state.stack else None
    if type(owner) is OpenList and not owner and (run := _RUN.match(buffer, at)):
        text = run.group()
        known = state.runs.get(text)
        if known is not None:
            state.replace_top(owner, known)
            return run.end()
        owner.extend(_resolve(state.memo, text))
        new = state.reducer.finished_list(owner)
        if new is not owner:
            state.runs[text] = new
            state.kept_text += len(text)
        state.replace_top(owner, new)
        return run.end()
    state.marks.append(len(state.stack))
    return at


def _resolve(memo: list[Any], run: bytes) -> list[Any]:
    found = (int.from_bytes(a or b, "little") for a, b in _REFERENCE.findall(run))
    return [memo[position] for position in found]


def _set_items(state: PickleState, _: bytes, at: int) -> int:
    items = state.pop_group()
    return _fill_dict(state, items, at)


def _set_item(state: PickleState, _: bytes, at: int) -> int:
    value = state.stack.pop()
    key = state.stack.pop()
    return _fill_dict(state, [key, value], at)


def _fill_dict(state: PickleState, items: list[Any], at: int) -> int:
    target = state.stack[-1]
    if type(target) is not OpenDict or len(items) % 2:
        raise ValueError
    target.update(zip(items[::2], items[1::2], strict=True))
    state.replace_top(target, state.reducer.finished_dict(target))
    return at


def _appends(state: PickleState, _: bytes, at: int) -> int:
    return _fill_list(state, state.pop_group(), at)


def _append(state: PickleState, _: bytes, at: int) -> int:
    return _fill_list(state, [state.stack.pop()], at)


def _fill_list(state: PickleState, items: list[Any], at: int) -> int:
    target = state.stack[-1]
    if type(target) is not OpenList:
        raise ValueError
    fresh = not target
    target.extend(items)
    if fresh:
        state.replace_top(target, state.reducer.finished_list(target))
    return at


def _empty_dict(state: PickleState, buffer: bytes, at: int) -> int:
    if state.lane is not None:
        columns, end = state.lane.read(buffer, at - 1, state.end)
        if columns:
            state.idle = 0
            state.taken += len(columns[0])
            state.push_rows(state.reducer.finished_dicts(state.lane.keys, columns))
            return end
    state.push_new(OpenDict())
    return at


def _empty_list(state: PickleState, _: bytes, at: int) -> int:
    state.push_new(OpenList())
    return at


def _tuple_of(size: int | None) -> Handler:
    def push(state: PickleState, _: bytes, at: int) -> int:
        if size is None:
            items = state.pop_group()
        else:
            items = state.stack[len(state.stack) - size :]
            del state.stack[len(state.stack) - size :]
        state.push_new(tuple(items))
        return at

    return push


def _constant(value: Any) -> Handler:
    def push(state: PickleState, _: bytes, at: int) -> int:
        state.stack.append(value)
        return at

    return push


def _number(layout: str) -> Handler:
    one = struct.Struct(layout)

    def push(state: PickleState, buffer: bytes, at: int) -> int:
        state.stack.append(one.unpack_from(buffer, at)[0])
        return at + one.size

    return push


def _text(length_bytes: int) -> Handler:
    def push(state: PickleState, buffer: bytes, at: int) -> int:
        start = at + length_bytes
        size = int.from_bytes(buffer[at:start], "little")
        if size > MAX_TEXT_BYTES:
            raise state.refused(f"it holds a text of {size:,} bytes")
        end = start + size
        text = buffer[start:end]
        known = state.texts.get(text)
        if known is None:
            state.kept_text += size
            state.kept += 1
            known = state.texts[text] = text.decode("utf-8", "replace")
        state.stack.append(known)
        return end

    return push


def _get_long(state: PickleState, buffer: bytes, at: int) -> int:
    if at + 4 > state.end:
        raise Truncated
    state.stack.append(state.memo[int.from_bytes(buffer[at : at + 4], "little")])
    return at + 4


def _memoize(state: PickleState, _: bytes, at: int) -> int:
    state.name_top(len(state.memo))
    return at


def _put_short(state: PickleState, buffer: bytes, at: int) -> int:
    state.name_top(buffer[at])
    return at + 1


def _put_long(state: PickleState, buffer: bytes, at: int) -> int:
    if at + 4 > state.end:
        raise Truncated
    state.name_top(int.from_bytes(buffer[at : at + 4], "little"))
    return at + 4


def _skip(size: int) -> Handler:
    return lambda state, buffer, at: at + size


def _long4(state: PickleState, buffer: bytes, at: int) -> int:
    size = int.from_bytes(buffer[at : at + 4], "little")
    if size > MAX_INTEGER_BYTES:
        raise state.refused(f"it holds an integer of {size:,} bytes")
    end = at + 4 + size
    state.stack.append(int.from_bytes(buffer[at + 4 : end], "little", signed=True))
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
