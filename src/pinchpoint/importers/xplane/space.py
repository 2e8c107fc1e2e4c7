"""The XSpace message, decoded: planes of lines of events, with their statistics by name.

Field numbers are those of the published ``xplane.proto``.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import lru_cache
from typing import Any, NamedTuple

from pinchpoint.frozen import dataclass
from pinchpoint.importers.files.wire import (
    BYTES,
    INTEGER,
    VARINT,
    Field,
    MalformedMessage,
    Part,
    fields,
    messages,
    number_at,
    parts,
    real,
)
from pinchpoint.regex import regex
from pinchpoint.trace import Device, DeviceKind, MemoryKind
from pinchpoint.trace.kinds import collective_kind

Value = int | float | str
# Field numbers of xplane.proto.
_SPACE_PLANE = 1
# of a plane.
_PLANE_NAME, _PLANE_LINE, _PLANE_EVENT_NAME, _PLANE_STAT_NAME, _PLANE_STAT = 2, 3, 4, 5, 6
_LINE_ID, _LINE_NAME, _LINE_START, _LINE_EVENT, _LINE_SHOWN = 1, 2, 3, 4, 11  # of a line
_EVENT_NAME, _EVENT_OFFSET, _EVENT_DURATION, _EVENT_STAT = 1, 2, 3, 4  # of an event
_NAME_COMES = _EVENT_NAME << 3 | VARINT  # the first byte of an event, as all writers begin it
_STAT_NAME, _DOUBLE, _UNSIGNED, _SIGNED, _TEXT = 1, 2, 3, 4, 5  # of a statistic
_RAW, _REFERENCE = 6, 7  # the same
_BYTES_OF_A_DOUBLE = 8  # of IEEE 754
_KEY, _MESSAGE = 1, 2  # of an entry of a map
_META_NAME, _META_STAT = 2, 5  # of the description of an event or statistic


@dataclass(frozen=True, slots=True)
class Event:
    """One event; times in picoseconds since the start of its line."""

    name: str
    offset_ps: int
    duration_ps: int
    stats: dict[str, Value]


@dataclass(frozen=True)
class Events:
    """The events of a line, decoded anew each time they are gone through: all of them together
    would take seventy times the file."""

    message: memoryview
    names: "_Names"

    def __iter__(self) -> Iterator[Event]:
        line = bytes(self.message)
        for at, end in messages(line, _LINE_EVENT):
            yield _event(line, at, end, self.names)

    def any_named(self, wanted: Callable[[str], object]) -> bool:
        """Whether the name of any event is wanted; names are asked once each."""
        keys = {key for key, name in self.names.events.items() if wanted(name)}
        if not keys:
            return False
        line = bytes(self.message)
        try:
            return any(
                line[at] == _NAME_COMES and number_at(line, at + 1)[0] in keys
                for at, _ in messages(line, _LINE_EVENT)
            )
        except IndexError:
            raise MalformedMessage("cut off") from None

    def __bool__(self) -> bool:
        return any(entry.number == _LINE_EVENT for entry in fields(self.message))


@dataclass(frozen=True)
class Line:
    """A thread or stream."""

    id: int
    name: str
    start_ns: int
    events: Events


@dataclass(frozen=True)
class Plane:
    """A device, or the host."""

    name: str
    lines: list[Line]
    stats: dict[str, Value]
    programs: tuple["StoredProgram", ...] = ()  # of /host:metadata


class StoredProgram(NamedTuple):
    """A compiled program as it stands in the file."""

    id: int | None  # ``program_id`` of what ran of it
    message: memoryview  # HloProto


@dataclass
class _Names:
    """The texts that events and statistics of a plane refer to by number."""

    events: dict[int, str] = field(default_factory=dict)
    event_stats: dict[int, list[memoryview]] = field(default_factory=dict)
    stats: dict[int, str] = field(default_factory=dict)
    described: dict[int, dict[str, Value]] = field(default_factory=dict)


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
    programs = tuple(_programs(names)) if _PROGRAM in names.stats.values() else ()
    return Plane(name, [_line(line, names) for line in lines], dict(_stats(stats, names)), programs)


_PROGRAM = "Hlo Proto"


_PROGRAM_ID = regex(r"\((\d{1,19})\)$")  # jit_step(27)


def _programs(names: _Names) -> Iterator[StoredProgram]:
    for key, described in names.event_stats.items():
        found = _PROGRAM_ID.search(names.events.get(key, ""))
        number = int(found[1]) if found else None
        for message in described:
            told = list(fields(message))
            if any(
                p.number == _STAT_NAME
                and p.kind == VARINT
                and names.stats.get(p.integer) == _PROGRAM
                for p in told
            ):
                raw = (p.bytes for p in told if p.number == _RAW and p.kind == BYTES)
                yield from (StoredProgram(number, message) for message in raw)


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
    number, name, shown, start_ns = 0, "", "", 0
    for entry in fields(message):
        if entry.number == _LINE_ID:
            number = entry.integer
        elif entry.number == _LINE_NAME:
            name = entry.text
        elif entry.number == _LINE_SHOWN:
            shown = entry.text
        elif entry.number == _LINE_START:
            start_ns = _signed(entry.integer)
    return Line(number, shown or name, start_ns, Events(message, names))


def _event(message: bytes, begin: int, until: int, names: _Names) -> Event:
    key = offset = duration = 0
    own: list[tuple[int, int]] = []
    for number, value, end in parts(message, begin, until):
        if end != INTEGER:
            if number == _EVENT_STAT:
                own.append((value, end))
        elif number == _EVENT_NAME:
            key = value
        elif number == _EVENT_OFFSET:
            offset = _signed(value)
        elif number == _EVENT_DURATION:
            duration = _signed(value)
    stats = dict(_described(key, names))
    for at, end in own:
        stat = _stat(message, at, end, names)
        if stat is not None:
            stats[stat[0]] = stat[1]
    return Event(names.events.get(key, ""), offset, duration, stats)


def _described(key: int, names: _Names) -> dict[str, Value]:
    """What the description of an event says of all that are named by it; read once."""
    if key not in names.described:
        names.described[key] = dict(_stats(names.event_stats.get(key, []), names))
    return names.described[key]


def _stats(found: list[memoryview], names: _Names) -> Iterator[tuple[str, Value]]:
    for message in found:
        content = bytes(message)
        stat = _stat(content, 0, len(content), names)
        if stat is not None:
            yield stat


def _stat(message: bytes, at: int, end: int, names: _Names) -> tuple[str, Value] | None:
    key, value = 0, None
    for part in parts(message, at, end):
        if part[0] == _STAT_NAME:
            key = part[1] if part[2] == INTEGER else 0
        elif value is None:
            value = _value(message, part, names)
    return None if value is None else (names.stats.get(key, ""), value)


def _value(message: bytes, part: Part, names: _Names) -> Value | None:
    number, value, end = part
    if end == INTEGER:
        if number == _REFERENCE:
            return names.stats.get(value)
        if number == _UNSIGNED:
            return value
        return _signed(value) if number == _SIGNED else None
    if number == _DOUBLE:
        return real(message, part) if end - value == _BYTES_OF_A_DOUBLE else None
    return message[value:end].decode("utf-8", "replace") if number == _TEXT else None


def _signed(number: int) -> int:
    """The signed number that a varint of 64 bits stands for."""
    if number >= 1 << 64:
        raise MalformedMessage("a number of more than 64 bits")
    return number - (1 << 64) if number >= 1 << 63 else number


# ------------------------------------------------------------------------------------------------
# What a device's plane says: the device itself, and one operation on it.


_PAIRS = regex(r"(\w+):(\S+)")  # regs:32 grid:8192,1,1, and kind_src:device size:4
_COPY = regex(r"Memcpy(?P<from>[HD])2(?P<to>[HD])", re.IGNORECASE)
# The driver's own kernels, by which a graph copies within the device: ``memcpy32_post``. How much
# they copy is not recorded.
_BY_A_KERNEL = regex(r"memcpy\d+(_\w+)?$")
_MEMORY = {
    "device": MemoryKind.DEVICE,
    "pinned": MemoryKind.PINNED,
    "pageable": MemoryKind.PAGEABLE,
    "host": MemoryKind.HOST,
    "managed": MemoryKind.UNIFIED,
    "array": MemoryKind.ARRAY,
    "h": MemoryKind.HOST,
    "d": MemoryKind.DEVICE,
}
_MOST = 1 << 31  # numbers of a launch are smaller


def device_of(plane: Plane, number: int, kind: str) -> Device:
    """The device that a plane describes."""
    stats = plane.stats
    major, minor = _whole(stats, "compute_cap_major"), _whole(stats, "compute_cap_minor")
    name = stats.get("gpu_device_name") or stats.get("device_type_string")
    vendor = stats.get("device_vendor")
    return Device(
        number,
        str(name) if name else None,
        _whole(stats, "memory_size"),
        _whole(stats, "core_count"),
        (major, minor) if major is not None and minor is not None else None,
        str(vendor).lower() if vendor else ("google" if kind == "TPU" else None),
    )


def _whole(stats: dict[str, Value], name: str) -> int | None:
    value = stats.get(name)
    return value if isinstance(value, int) else None


def device_row(
    event: Event, start_ns: int, duration_ns: int, device: int, stream: int
) -> dict[str, Any]:
    """A row of ``device_ops``."""
    stats = event.stats
    row: dict[str, Any] = {
        "start_ns": start_ns,
        "duration_ns": duration_ns,
        "name": event.name,
        "kind": DeviceKind.KERNEL,
        "device": device,
        "stream": stream if stream < _MOST else None,
        "correlation": _small(stats.get("correlation_id"), 1 << 62),
        "graph_node": _small(stats.get("cuda_graph_node_id"), 1 << 62),
    }
    if event.name.lower().startswith("memcpy"):
        return row | _copy(event)
    if event.name.lower().startswith("memset"):
        pairs = dict(_PAIRS.findall(str(stats.get("memset_details", ""))))
        size = _decimal(pairs.get("num_bytes") or pairs.get("size"), 1 << 62)
        return row | {"kind": DeviceKind.MEMSET, "bytes": size}
    collective = collective_kind(event.name)
    if collective is not None:
        row |= {"kind": DeviceKind.COLLECTIVE, "collective": collective}
    return row | _launch(str(stats.get("kernel_details", "")))


def _copy(event: Event) -> dict[str, Any]:
    pairs = dict(_PAIRS.findall(str(event.stats.get("memcpy_details", ""))))
    named = _COPY.match(event.name)
    ends = (named["from"], named["to"]) if named else ("", "")
    if not pairs and _BY_A_KERNEL.match(event.name):
        ends = ("D", "D")
    source, target = str(pairs.get("kind_src", ends[0])), str(pairs.get("kind_dst", ends[1]))
    return _launch(str(event.stats.get("kernel_details", ""))) | {
        "kind": DeviceKind.COPY,
        "bytes": _decimal(pairs.get("size") or pairs.get("num_bytes"), 1 << 62),
        "from_memory": _MEMORY.get(source.lower()),
        "to_memory": _MEMORY.get(target.lower()),
    }


@lru_cache(1 << 12)  # a program launches few kernels in few ways
def _launch(details: str) -> dict[str, Any]:
    pairs = dict(_PAIRS.findall(details))
    fixed = _decimal(pairs.get("static_shared"), _MOST // 2)
    dynamic = _decimal(pairs.get("dynamic_shared"), _MOST // 2)
    return {
        "grid": _shape(pairs.get("grid")),
        "block": _shape(pairs.get("block")),
        "registers": _decimal(pairs.get("regs"), _MOST),
        "shared_bytes": None if fixed is None or dynamic is None else fixed + dynamic,
        "occupancy_percent": _percent(pairs.get("occ_pct")),
    }


def _shape(text: str | None) -> str | None:
    numbers = [_decimal(part, _MOST) for part in (text or "").split(",")]
    return None if None in numbers else json.dumps(numbers)


def _decimal(text: str | None, limit: int) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 19:
        return None
    return _small(int(text), limit)


def _small(number: Value | None, limit: int) -> int | None:
    return number if isinstance(number, int) and 0 <= number < limit else None


def _percent(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"\d{1,3}(\.\d{1,9})?", text) else None
