"""What packets of one writer refer to: names, clocks and tracks that were told before.

Names are interned for each sequence of packets until it says that its state is cleared; times may
count from the packet before.
"""

from collections.abc import Sized
from dataclasses import field
from typing import NamedTuple

from pinchpoint.errors import HostileFile
from pinchpoint.frozen import dataclass
from pinchpoint.importers.files.wire import INTEGER, Part, parts

# Fields of a packet.
CLOCKS, EVENT, INTERNED, CLOCK, DEFAULTS, TRACK = 6, 11, 12, 58, 59, 60
OF_TRACK = 11  # of an event
MOST_NAMES = 1 << 17  # of a sequence, or of all slices; a program has some thousands
_MOST_TRACKS = 1 << 16  # threads, queues and counters of a machine
_DEFAULT_CLOCK = 6  # since boot
_LEAST_OF_SEQUENCE = 64  # clocks of a sequence's own
_64_BITS = (1 << 64) - 1


class Track(NamedTuple):
    """A lane: a thread, a queue of a device, or any line that a program drew."""

    name: str = ""
    parent: int | None = None
    process: int | None = None
    process_name: str = ""
    thread: int | None = None


@dataclass
class Clock:
    """How a writer's times count."""

    at: int = 0
    unit_ns: int = 1
    incremental: bool = False
    offset_ns: int = 0  # of the clock since boot, at the time of the snapshot


@dataclass
class Sequence:
    """What packets of one writer refer to."""

    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    clocks: dict[int, Clock] = field(default_factory=dict)
    clock: int = _DEFAULT_CLOCK
    track: int = 0


def told(data: bytes, held: dict[int, Part], sequence: Sequence, tracks: dict[int, Track]) -> bool:
    """Keep what a packet tells later ones; whether it tells anything."""
    if DEFAULTS in held:
        _defaults(data, held[DEFAULTS], sequence)
    if CLOCKS in held:
        _clocks(data, held[CLOCKS], sequence)
    if INTERNED in held:
        _interned(data, held[INTERNED], sequence)
    if TRACK in held:
        number, track = _track(data, held[TRACK])
        tracks[number] = track
        bounded(tracks, _MOST_TRACKS, "tracks")
    return not held.keys().isdisjoint((DEFAULTS, CLOCKS, INTERNED, TRACK))


def bounded(held: Sized, most: int, what: str) -> None:
    """HostileFile for more than any program has."""
    if len(held) > most:
        raise HostileFile(f"more than {most:,} {what}", hint="record fewer steps")


def time_ns(at: int, number: int, sequence: Sequence) -> int:
    """A time by the clock of this number; nanoseconds since boot."""
    clock = sequence.clocks.get(number)
    if clock is None:
        return at
    if clock.incremental:
        clock.at += at
        at = clock.at
    return at * clock.unit_ns + clock.offset_ns


def inside(data: bytes, part: Part) -> list[Part]:
    """The fields of a message; none where a number stands in its place."""
    return [] if part[2] == INTEGER else parts(data, part[1], part[2])


def text_of(data: bytes, part: Part) -> str:
    """A text; empty where a number stands in its place."""
    return "" if part[2] == INTEGER else data[part[1] : part[2]].decode("utf-8", "replace")


def integer(held: dict[int, Part], number: int) -> int:
    """The number in a field; 0 where it is not there or no number."""
    return number_of(held[number]) if number in held else 0


def number_of(part: Part) -> int:
    """The number in a field; 0 where it holds no number."""
    return part[1] if part[2] == INTEGER else 0


def _defaults(data: bytes, message: Part, sequence: Sequence) -> None:
    for part in inside(data, message):
        if part[0] == CLOCK:
            sequence.clock = number_of(part)
        elif part[0] == EVENT:
            for inner in inside(data, part):
                if inner[0] == OF_TRACK:
                    sequence.track = number_of(inner)


def _clocks(data: bytes, message: Part, sequence: Sequence) -> None:
    read: dict[int, Clock] = {}
    for part in inside(data, message):
        if part[0] == 1:
            held = {inner[0]: inner for inner in inside(data, part)}
            clock = Clock(integer(held, 2), integer(held, 4) or 1, bool(integer(held, 3)))
            read[integer(held, 1)] = clock
    boot = read.get(_DEFAULT_CLOCK)
    for number, clock in read.items():
        if number >= _LEAST_OF_SEQUENCE:
            clock.offset_ns = boot.at - clock.at * clock.unit_ns if boot else 0
            sequence.clocks[number] = clock


def _interned(data: bytes, message: Part, sequence: Sequence) -> None:
    kept = {1: sequence.categories, 2: sequence.names, 3: sequence.notes, 29: sequence.texts}
    for part in inside(data, message):
        if part[0] in kept:
            entry = {inner[0]: inner for inner in inside(data, part)}
            if 1 in entry and 2 in entry:
                kept[part[0]][number_of(entry[1])] = text_of(data, entry[2])
                bounded(kept[part[0]], MOST_NAMES, "names")


def _track(data: bytes, message: Part) -> tuple[int, Track]:
    held = {part[0]: part for part in inside(data, message)}
    process = {p[0]: p for p in inside(data, held[3])} if 3 in held else {}
    thread = {p[0]: p for p in inside(data, held[4])} if 4 in held else {}
    named = next((text_of(data, held[n]) for n in (2, 10) if n in held), "")
    thread_name = text_of(data, thread[5]) if 5 in thread else ""
    known = integer(process, 1) or integer(thread, 1)
    return integer(held, 1) & _64_BITS, Track(
        name=named or thread_name,
        parent=number_of(held[5]) & _64_BITS if 5 in held else None,
        process=known or None,
        process_name=text_of(data, process[6]) if 6 in process else "",
        thread=number_of(thread[2]) if 2 in thread else None,
    )
