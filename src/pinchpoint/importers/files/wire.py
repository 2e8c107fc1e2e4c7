"""The protobuf wire format, as far as reading reports needs it: bounded, no schema compiler."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types of protocol buffers
_FIXED = {FIXED64: 8, FIXED32: 4}  # bytes
_MOST_PARTS = 1 << 16  # fields of one small message that are looked at together
_LONGEST_VARINT = 10  # bytes of 7 bits for 64 bits


class Field(NamedTuple):
    """One field: its number, its wire type, and an int (varint) or the bytes of it."""

    number: int
    kind: int
    value: int | memoryview

    @property
    def integer(self) -> int:
        """A varint; 0 for another kind of field."""
        return self.value if isinstance(self.value, int) else 0

    @property
    def bytes(self) -> memoryview:
        """The content of a message or string; empty for a varint."""
        return memoryview(b"") if isinstance(self.value, int) else self.value

    @property
    def text(self) -> str:
        """The content as text."""
        return bytes(self.bytes).decode("utf-8", "replace")

    @property
    def real(self) -> float | None:
        """A float or double, or None."""
        if self.kind == FIXED64:
            return float(struct.unpack("<d", self.bytes)[0])
        return float(struct.unpack("<f", self.bytes)[0]) if self.kind == FIXED32 else None


class MalformedMessage(ValueError):
    """The bytes are no message."""


Part = tuple[int, int, int]  # a field's number; a number and INTEGER, or where its bytes lie
INTEGER = -1  # no place in a file


def parts(data: bytes, at: int, end: int) -> list[Part]:
    """The fields between two places, as ``fields`` has them but five times as fast.

    Nothing is copied. Raises MalformedMessage where they are cut off, nonsense, or too many.
    """
    found: list[Part] = []
    add = found.append
    most = _MOST_PARTS
    try:
        while at < end:
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = _long(data, at, tag)
            kind = tag & 7
            if kind == VARINT:
                value = data[at]
                at += 1
                if value >= 0x80:
                    value, at = _long(data, at, value)
                add((tag >> 3, value, INTEGER))
                continue
            if kind == BYTES:
                size = data[at]
                at += 1
                if size >= 0x80:
                    size, at = _long(data, at, size)
            else:
                size = _FIXED[kind]
            add((tag >> 3, at, at + size))
            at += size
            if len(found) > most:
                raise MalformedMessage("too many fields")
    except (IndexError, KeyError):
        at = end + 1
    if at > end:
        raise MalformedMessage("cut off, or no message")
    return found


def messages(data: bytes, number: int) -> Iterator[tuple[int, int]]:
    """Where the messages of one field lie, but for empty ones, in one of however many fields.

    Raises MalformedMessage behind the last one that is whole.
    """
    at, end = 0, len(data)
    wanted = number << 3 | BYTES
    try:
        while at < end:
            tag, at = data[at], at + 1
            if tag >= 0x80:
                tag, at = _long(data, at, tag)
            kind = tag & 7
            if kind in _FIXED:
                at += _FIXED[kind]
            elif kind == BYTES:
                start = at + 1
                size = data[at]
                if size >= 0x80:
                    size, start = _long(data, start, size)
                at = start + size
                if tag == wanted and start < at <= end:
                    yield start, at
            elif kind == VARINT:
                at = number_at(data, at)[1]
            else:
                raise MalformedMessage(f"wire type {kind}")
    except IndexError:
        at = end + 1
    if at > end:
        raise MalformedMessage("cut off")


def number_at(data: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends. Raises IndexError where it is cut off."""
    return (data[at], at + 1) if data[at] < 0x80 else _long(data, at + 1, data[at])


def _long(data: bytes, at: int, first: int) -> tuple[int, int]:
    """The rest of a number of several bytes."""
    result = first & 0x7F
    for shift in range(7, 7 * _LONGEST_VARINT, 7):
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at
    raise MalformedMessage("a number without end")


def real(data: bytes, part: Part) -> float | None:
    """A float or double, or None."""
    raw = b"" if part[2] == INTEGER else data[part[1] : part[2]]
    if len(raw) == 8:
        return float(struct.unpack("<d", raw)[0])
    return float(struct.unpack("<f", raw)[0]) if len(raw) == 4 else None


def fields(message: memoryview) -> Iterator[Field]:
    """The fields of a message in order. Raises Malformed where it is cut off or nonsense."""
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = _varint(message, at)
            yield Field(number, kind, value)
            continue
        if kind == BYTES:
            size, at = _varint(message, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise MalformedMessage(f"wire type {kind}")
        if size > end - at:
            raise MalformedMessage("cut off")
        yield Field(number, kind, message[at : at + size])
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    result = 0
    for shift in range(_LONGEST_VARINT):
        if at >= len(message):
            raise MalformedMessage("cut off")
        byte = message[at]
        at += 1
        result |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return result, at
    raise MalformedMessage("a number without end")
