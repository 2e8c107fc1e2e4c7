"""The packets of a Perfetto trace as slices: begins and ends joined, names and clocks resolved.

Field numbers are those of the published ``perfetto_trace.proto``. Names are interned for each
sequence of packets until it says that its state is cleared; times may count from the packet before.
Slices are columns of numbers: an object each would take ten times the file.
"""

from array import array
from collections.abc import Sized
from dataclasses import field
from typing import NamedTuple

from pinchpoint.errors import HostileFile
from pinchpoint.frozen import dataclass
from pinchpoint.importers.files.wire import (
    INTEGER,
    MalformedMessage,
    Part,
    messages,
    number_at,
    parts,
    real,
)
from pinchpoint.trace import Names

Value = int | float | str

_PACKET = 1  # of a trace
# Fields of a packet.
_CLOCKS, _TIME, _SEQUENCE, _EVENT, _INTERNED, _FLAGS = 6, 8, 10, 11, 12, 13
_TIME_FIRST = _TIME << 3  # how a packet begins whose first field is its time
# The rest of them.
_CLEARED, _CLOCK, _DEFAULTS, _TRACK = 41, 58, 59, 60
# Fields of an event.
_NOTE, _TYPE, _OF_TRACK = 4, 9, 11
_NAMES, _CATEGORIES = (23, 10), (22, 3)  # in their place, or by number
# Its flows, and where they stood before.
_FLOWS, _FLOW_ENDS = (47, 36), (48, 42)
_BEGIN, _END = 1, 2  # types of events
_DEFAULT_CLOCK = 6  # since boot
_LEAST_OF_SEQUENCE = 64  # clocks of a sequence's own
CORRELATIONS = ("corr_id", "correlation", "correlation_id")
_NOTED = frozenset((*CORRELATIONS, "begin_ns", "end_ns"))  # what else slices say is not read
_MOST_TRACKS = 1 << 16  # threads, queues and counters of a machine
_MOST_SEQUENCES = 1 << 12  # a writer is a thread of a process
_MOST_NAMES = 1 << 18  # of a sequence; a program has some thousands
_FURTHEST = 1 << 62  # ns; later than any clock
NOT_KNOWN = -1  # no time, position or number of a call
_SHORT_BYTES = 64  # of a packet with a writer, and an event with a type, a track and names
_MOST_SEEN = 1 << 10  # different ones that are remembered: a program has some hundred
_64_BITS = (1 << 64) - 1


class Track(NamedTuple):
    """A lane: a thread, a queue of a device, or any line that a program drew."""

    name: str = ""
    parent: int | None = None
    process: int | None = None
    process_name: str = ""
    thread: int | None = None


@dataclass
class _Clock:
    at: int = 0
    unit_ns: int = 1
    incremental: bool = False
    offset_ns: int = 0  # of the clock since boot, at the time of the snapshot


@dataclass
class _Sequence:
    """What packets of one writer refer to."""

    names: dict[int, str] = field(default_factory=dict)
    categories: dict[int, str] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    clocks: dict[int, _Clock] = field(default_factory=dict)
    clock: int = _DEFAULT_CLOCK
    track: int = 0


class _Event(NamedTuple):
    """What a begin or an end says."""

    kind: int
    track: int
    name: str
    category: str
    notes: dict[str, int]
    flows: tuple[int, ...]
    flow_ends: tuple[int, ...]


_NOTHING = _Event(0, 0, "", "", {}, (), ())


@dataclass
class Slices:
    """All that a trace shows; a slice is a position in the columns.

    ``end_ns`` is NOT_KNOWN where it was not recorded; ``name`` and ``category`` are positions in
    ``texts``, ``notes`` and ``flows`` are of those slices that have some.
    """

    track: "array[int]" = field(default_factory=lambda: array("Q"))
    begin_ns: "array[int]" = field(default_factory=lambda: array("q"))
    end_ns: "array[int]" = field(default_factory=lambda: array("q"))
    name: "array[int]" = field(default_factory=lambda: array("l"))
    category: "array[int]" = field(default_factory=lambda: array("l"))
    notes: "dict[str, array[int]]" = field(default_factory=dict)
    flows: dict[int, tuple[int, ...]] = field(default_factory=dict)
    flow_ends: dict[int, tuple[int, ...]] = field(default_factory=dict)
    texts: Names = field(default_factory=Names)
    tracks: dict[int, Track] = field(default_factory=dict)
    unmatched: int = 0  # ends without a begin
    cut_off: bool = False

    def __len__(self) -> int:
        return len(self.track)

    def noted(self, key: str, row: int) -> int:
        """What a slice says of a key; NOT_KNOWN where it says nothing."""
        held = self.notes.get(key, ())
        return held[row] if row < len(held) else NOT_KNOWN


@dataclass
class _Reading:
    data: bytes
    found: Slices = field(default_factory=Slices)
    sequences: dict[int, _Sequence] = field(default_factory=dict)
    open_on: dict[int, int] = field(default_factory=dict)  # the last slice begun on a track
    below: "array[int]" = field(default_factory=lambda: array("q"))  # the one begun before it
    # What short packets said, behind their times; until anything is told that they may refer to.
    seen: "dict[bytes | None, tuple[_Event, _Sequence, int]]" = field(default_factory=dict)


def read_slices(data: bytes) -> Slices:
    """Every slice; what stands behind a cut or a broken packet is left out and said.

    HostileFile for more tracks, writers or names than any program has.
    """
    reading = _Reading(data)
    try:
        for start, end in messages(data, _PACKET):
            _packet(reading, start, end)
    except MalformedMessage:
        reading.found.cut_off = True
    return reading.found


def _packet(reading: _Reading, start: int, end: int) -> None:
    """Most packets say what one before them said, at another time, which stands first."""
    data, at, time = reading.data, start, None
    if at < end and data[at] == _TIME_FIRST:
        time, at = _first(data, start + 1, end)
    short = data[at:end] if end - at <= _SHORT_BYTES else None
    known = reading.seen.get(short)
    if known is not None:
        event, sequence, clock = known
        _event(reading, event, 0 if time is None else _time(time, clock, sequence))
        return
    held = {part[0]: part for part in parts(data, at, end)}
    if _TIME in held:
        time, short = _number(held[_TIME]), None
    number = _integer(held, _SEQUENCE)
    found = reading.sequences.get(number)
    cleared = found is None or _integer(held, _FLAGS) & 1 or _integer(held, _CLEARED)
    if found is None or cleared:
        sequence = _Sequence(clocks={} if found is None else found.clocks)
        reading.sequences[number] = sequence
        _bounded(reading.sequences, _MOST_SEQUENCES, "writers")
    else:
        sequence = found
    # What an event refers to may stand in its own packet.
    told = _DEFAULTS in held or _INTERNED in held or _CLOCKS in held or _TRACK in held
    if told:
        _told(reading, held, sequence)
    if told or cleared:
        reading.seen.clear()
        short = None
    clock = _integer(held, _CLOCK) or sequence.clock
    time_ns = 0 if time is None else _time(time, clock, sequence)
    event = _said(data, held[_EVENT], sequence) if _EVENT in held else _NOTHING
    _event(reading, event, time_ns)
    if short is not None and len(reading.seen) < _MOST_SEEN:
        reading.seen[short] = event, sequence, clock


def _first(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number that a packet begins with, and where it ends."""
    try:
        number, at = number_at(data, at)
    except IndexError:
        at = end + 1
    if at > end:
        raise MalformedMessage("cut off")
    return number, at


def _told(reading: _Reading, held: dict[int, Part], sequence: _Sequence) -> None:
    """What later packets refer to."""
    data = reading.data
    if _DEFAULTS in held:
        _defaults(data, held[_DEFAULTS], sequence)
    if _CLOCKS in held:
        _clocks(data, held[_CLOCKS], sequence)
    if _INTERNED in held:
        _interned(data, held[_INTERNED], sequence)
    if _TRACK in held:
        number, track = _track(data, held[_TRACK])
        reading.found.tracks[number] = track
        _bounded(reading.found.tracks, _MOST_TRACKS, "tracks")


def _bounded(held: Sized, most: int, what: str) -> None:
    if len(held) > most:
        raise HostileFile(f"more than {most:,} {what}", hint="record fewer steps")


def _inside(data: bytes, part: Part) -> list[Part]:
    """The fields of a message; none where a number stands in its place."""
    return [] if part[2] == INTEGER else parts(data, part[1], part[2])


def _text(data: bytes, part: Part) -> str:
    return "" if part[2] == INTEGER else data[part[1] : part[2]].decode("utf-8", "replace")


def _integer(held: dict[int, Part], number: int) -> int:
    return held[number][1] if number in held and held[number][2] == INTEGER else 0


def _number(part: Part) -> int:
    return part[1] if part[2] == INTEGER else 0


def _defaults(data: bytes, message: Part, sequence: _Sequence) -> None:
    for part in _inside(data, message):
        if part[0] == _CLOCK:
            sequence.clock = _number(part)
        elif part[0] == _EVENT:
            for inner in _inside(data, part):
                if inner[0] == _OF_TRACK:
                    sequence.track = _number(inner)


def _clocks(data: bytes, message: Part, sequence: _Sequence) -> None:
    read: dict[int, _Clock] = {}
    for part in _inside(data, message):
        if part[0] == 1:
            held = {inner[0]: inner for inner in _inside(data, part)}
            clock = _Clock(_integer(held, 2), _integer(held, 4) or 1, bool(_integer(held, 3)))
            read[_integer(held, 1)] = clock
    boot = read.get(_DEFAULT_CLOCK)
    for number, clock in read.items():
        if number >= _LEAST_OF_SEQUENCE:
            clock.offset_ns = boot.at - clock.at * clock.unit_ns if boot else 0
            sequence.clocks[number] = clock


def _time(at: int, number: int, sequence: _Sequence) -> int:
    """A time by the clock of this number; nanoseconds since boot."""
    clock = sequence.clocks.get(number)
    if clock is None:
        return at
    if clock.incremental:
        clock.at += at
        at = clock.at
    return at * clock.unit_ns + clock.offset_ns


def _interned(data: bytes, message: Part, sequence: _Sequence) -> None:
    kept = {1: sequence.categories, 2: sequence.names, 3: sequence.notes, 29: sequence.texts}
    for part in _inside(data, message):
        if part[0] in kept:
            entry = {inner[0]: inner for inner in _inside(data, part)}
            if 1 in entry and 2 in entry:
                kept[part[0]][_number(entry[1])] = _text(data, entry[2])
                _bounded(kept[part[0]], _MOST_NAMES, "names")


def _track(data: bytes, message: Part) -> tuple[int, Track]:
    held = {part[0]: part for part in _inside(data, message)}
    process = {p[0]: p for p in _inside(data, held[3])} if 3 in held else {}
    thread = {p[0]: p for p in _inside(data, held[4])} if 4 in held else {}
    named = next((_text(data, held[n]) for n in (2, 10) if n in held), "")
    thread_name = _text(data, thread[5]) if 5 in thread else ""
    known = _integer(process, 1) or _integer(thread, 1)
    return _integer(held, 1) & _64_BITS, Track(
        name=named or thread_name,
        parent=_number(held[5]) & _64_BITS if 5 in held else None,
        process=known or None,
        process_name=_text(data, process[6]) if 6 in process else "",
        thread=_number(thread[2]) if 2 in thread else None,
    )


def _said(data: bytes, message: Part, sequence: _Sequence) -> _Event:
    kind, track, name = 0, sequence.track, ""
    categories: list[str] = []
    notes: dict[str, int] = {}
    flows: list[int] = []
    flow_ends: list[int] = []
    for part in _inside(data, message):
        number = part[0]
        if number == _TYPE:
            kind = _number(part)
        elif number == _OF_TRACK:
            track = _number(part)
        elif number in _NAMES:
            name = _spelt(data, part, sequence.names)
        elif number in _CATEGORIES:
            categories.append(_spelt(data, part, sequence.categories))
        elif number == _NOTE:
            _note(data, part, sequence, notes)
        elif number in _FLOWS:
            flows.append(_identity(data, part))
        elif number in _FLOW_ENDS:
            flow_ends.append(_identity(data, part))
    linked = tuple(flows), tuple(flow_ends)
    return _Event(kind, track & _64_BITS, name, ",".join(categories), notes, *linked)


def _spelt(data: bytes, part: Part, interned: dict[int, str]) -> str:
    """A text in its place, or the number of one that was told before."""
    return interned.get(part[1], "") if part[2] == INTEGER else _text(data, part)


def _event(reading: _Reading, event: _Event, time_ns: int) -> None:
    """Put a begin on its track, or end the last one that is open there."""
    found = reading.found
    at = min(max(time_ns, NOT_KNOWN), _FURTHEST)
    if event.kind == _BEGIN:
        row = len(found.track)
        found.track.append(event.track)
        found.begin_ns.append(at)
        found.end_ns.append(NOT_KNOWN)
        found.name.append(found.texts.id_of(event.name))
        found.category.append(found.texts.id_of(event.category))
        reading.below.append(reading.open_on.get(event.track, NOT_KNOWN))
        reading.open_on[event.track] = row
    elif event.kind == _END:
        row = reading.open_on.get(event.track, NOT_KNOWN)
        if row == NOT_KNOWN:
            found.unmatched += 1
            return
        found.end_ns[row] = at
        reading.open_on[event.track] = reading.below[row]
    else:
        return
    if event.notes or event.flows or event.flow_ends:
        _more(found, row, event)


def _more(found: Slices, row: int, event: _Event) -> None:
    for key, value in event.notes.items():
        held = found.notes.setdefault(key, array("q"))
        held.extend([NOT_KNOWN] * (row + 1 - len(held)))
        held[row] = value
    if event.flows:
        found.flows[row] = found.flows.get(row, ()) + event.flows
    if event.flow_ends:
        found.flow_ends[row] = found.flow_ends.get(row, ()) + event.flow_ends


def _identity(data: bytes, part: Part) -> int:
    return part[1] if part[2] == INTEGER else int.from_bytes(data[part[1] : part[2]][:8], "little")


def _note(data: bytes, message: Part, sequence: _Sequence, notes: dict[str, int]) -> None:
    name = ""
    value: Value | None = None
    for part in _inside(data, message):
        number = part[0]
        if number == 10:
            name = _text(data, part)
        elif number == 1:
            name = sequence.notes.get(_number(part), "")
        elif number in (2, 3, 7):
            value = _number(part)
        elif number == 4:
            value = _number(part) - (1 << 64) if _number(part) >> 63 else _number(part)
        elif number == 5:
            value = real(data, part)
        elif number == 6:
            value = _text(data, part)
        elif number == 17:
            value = sequence.texts.get(_number(part))
    if name in _NOTED and (whole := _whole(value)) is not None:
        notes[name] = whole


def _whole(value: Value | None) -> int | None:
    if isinstance(value, int):
        return value if 0 <= value < _FURTHEST else None
    text = value if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None
