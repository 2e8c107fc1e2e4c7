"""What a message of protobuf says, field by field, for those that are asked of few fields."""

from collections.abc import Iterator, Mapping, Sequence

from pinchpoint.importers.files import wire

Told = Mapping[int, Sequence[int | bytes]]  # what a message says, by number of the field


def told_by(message: bytes) -> Told:
    """What a message says. Raises MalformedMessage."""
    told: dict[int, list[int | bytes]] = {}
    for number, value, end in wire.parts(message, 0, len(message)):
        told.setdefault(number, []).append(value if end == wire.INTEGER else message[value:end])
    return told


def messages(told: Told, number: int) -> Iterator[bytes]:
    """The messages, or texts, of one field."""
    return (one for one in told.get(number, ()) if isinstance(one, bytes))


def text(told: Told, number: int) -> str:
    """The first text of a field; empty without one."""
    return spelt(next(messages(told, number), b""))


def spelt(name: bytes) -> str:
    """Bytes of a text."""
    return name.decode("utf-8", "replace")


def integer(told: Told, number: int, without: int = 0) -> int:
    """The first number of a field."""
    return next(integers(told, number), without)


def integers(told: Told, number: int) -> Iterator[int]:
    """A number, or several: packed into bytes or one a field."""
    for one in told.get(number, ()):
        if isinstance(one, int):
            yield one
        else:
            yield from _unpacked(one)


def _unpacked(packed: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0
