"""The protobuf wire format, as far as reading reports needs it: bounded, no schema compiler."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types of protocol buffers
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
