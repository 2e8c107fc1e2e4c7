"""The XSpace message, decoded: planes of lines of events, with their statistics by name.

Field numbers are those of the published ``xplane.proto``.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from pinchpoint.importers._wire import BYTES, FIXED64, VARINT, Field, Malformed, fields

Value = int | float | str
_SPACE_PLANE = 1
_PLANE_NAME, _PLANE_LINE, _PLANE_EVENT_NAME, _PLANE_STAT_NAME, _PLANE_STAT = 2, 3, 4, 5, 6
_LINE_ID, _LINE_NAME, _LINE_START, _LINE_EVENT, _LINE_SHOWN = 1, 2, 3, 4, 11
_EVENT_NAME, _EVENT_OFFSET, _EVENT_DURATION, _EVENT_STAT = 1, 2, 3, 4
_STAT_NAME, _DOUBLE, _UNSIGNED, _SIGNED, _TEXT, _REFERENCE = 1, 2, 3, 4, 5, 7
_KEY, _MESSAGE = 1, 2  # of an entry of a map
_META_NAME, _META_STAT = 2, 5


@dataclass(frozen=True)
class Event:
    """One event; times in picoseconds since the start of its line."""

    name: str
    offset_ps: int
    duration_ps: int
    stats: dict[str, Value]


@dataclass(frozen=True)
class Line:
    """A thread or stream."""

    id: int
    name: str
    start_ns: int
    events: list[Event]


@dataclass(frozen=True)
class Plane:
    """A device, or the host."""

    name: str
    lines: list[Line]
    stats: dict[str, Value]


@dataclass
class _Names:
    """The texts that events and statistics of a plane refer to by number."""

    events: dict[int, str] = field(default_factory=dict)
    event_stats: dict[int, list[memoryview]] = field(default_factory=dict)
    stats: dict[int, str] = field(default_factory=dict)


def read_planes(message: memoryview) -> list[Plane]:
    """All planes. Raises Malformed for anything that is no such message."""
    return [_plane(f.bytes) for f in fields(message) if f.number == _SPACE_PLANE and _is_message(f)]


def _is_message(entry: Field) -> bool:
    return entry.kind == BYTES


def _plane(message: memoryview) -> Plane:
    name, lines, stats, names = "", [], [], _Names()
    for entry in fields(message):
        if entry.number == _PLANE_NAME:
            name = entry.text
        elif entry.number == _PLANE_LINE:
            lines.append(entry.bytes)
        elif entry.number == _PLANE_EVENT_NAME:
            _learn_event(entry.bytes, names)
        elif entry.number == _PLANE_STAT_NAME:
            key, meta = _map_entry(entry.bytes)
            names.stats[key] = next((f.text for f in fields(meta) if f.number == _META_NAME), "")
        elif entry.number == _PLANE_STAT:
            stats.append(entry.bytes)
    return Plane(name, [_line(line, names) for line in lines], dict(_stats(stats, names)))


def _map_entry(message: memoryview) -> tuple[int, memoryview]:
    key, value = 0, memoryview(b"")
    for entry in fields(message):
        if entry.number == _KEY:
            key = entry.integer
        elif entry.number == _MESSAGE:
            value = entry.bytes
    return key, value


def _learn_event(message: memoryview, names: _Names) -> None:
    key, meta = _map_entry(message)
    for entry in fields(meta):
        if entry.number == _META_NAME:
            names.events[key] = entry.text
        elif entry.number == _META_STAT:
            names.event_stats.setdefault(key, []).append(entry.bytes)


def _line(message: memoryview, names: _Names) -> Line:
    number, name, shown, start_ns, events = 0, "", "", 0, []
    for entry in fields(message):
        if entry.number == _LINE_ID:
            number = entry.integer
        elif entry.number == _LINE_NAME:
            name = entry.text
        elif entry.number == _LINE_SHOWN:
            shown = entry.text
        elif entry.number == _LINE_START:
            start_ns = _signed(entry.integer)
        elif entry.number == _LINE_EVENT:
            events.append(_event(entry.bytes, names))
    return Line(number, shown or name, start_ns, events)


def _event(message: memoryview, names: _Names) -> Event:
    key = offset = duration = 0
    stats: list[memoryview] = []
    for entry in fields(message):
        if entry.number == _EVENT_NAME:
            key = entry.integer
        elif entry.number == _EVENT_OFFSET:
            offset = _signed(entry.integer)
        elif entry.number == _EVENT_DURATION:
            duration = _signed(entry.integer)
        elif entry.number == _EVENT_STAT:
            stats.append(entry.bytes)
    both = [*names.event_stats.get(key, ()), *stats]
    return Event(names.events.get(key, ""), offset, duration, dict(_stats(both, names)))


def _stats(messages: list[memoryview], names: _Names) -> Iterator[tuple[str, Value]]:
    for message in messages:
        key, value = 0, None
        for entry in fields(message):
            if entry.number == _STAT_NAME:
                key = entry.integer
            else:
                value = _value(entry, names) if value is None else value
        if value is not None:
            yield names.stats.get(key, ""), value


def _value(entry: Field, names: _Names) -> Value | None:
    if entry.number == _DOUBLE and entry.kind == FIXED64:
        return float(struct.unpack("<d", entry.bytes)[0])
    if entry.kind == VARINT:
        if entry.number == _REFERENCE:
            return names.stats.get(entry.integer)
        if entry.number == _UNSIGNED:
            return entry.integer
        return _signed(entry.integer) if entry.number == _SIGNED else None
    return entry.text if entry.number == _TEXT else None


def _signed(number: int) -> int:
    """The signed number that a varint of 64 bits stands for."""
    if number >= 1 << 64:
        raise Malformed("a number of more than 64 bits")
    return number - (1 << 64) if number >= 1 << 63 else number
