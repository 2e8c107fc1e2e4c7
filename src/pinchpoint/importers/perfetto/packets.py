"""The packets of a Perfetto trace as slices: begins and ends joined, names and clocks resolved.

Field numbers are those of the published ``perfetto_trace.proto``. Slices are columns of numbers:
an object each would take ten times the file.
"""

from array import array
from dataclasses import field
from typing import NamedTuple

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
from pinchpoint.importers.perfetto.sequences import (
    CLOCK,
    EVENT,
    MOST_NAMES,
    OF_TRACK,
    Sequence,
    Track,
    bounded,
    inside,
    integer,
    number_of,
    text_of,
    time_ns,
    told,
)
from pinchpoint.trace import Names

Value = int | float | str

_PACKET = 1  # of a trace
_TIME, _SEQUENCE, _FLAGS, _CLEARED = 8, 10, 13, 41  # fields of a packet
_TIME_FIRST = _TIME << 3  # how a packet begins whose first field is its time
_NOTE, _TYPE = 4, 9  # fields of an event
_NAME, _INTERNED_NAME = 23, 10  # the same in its place, and by number
_CATEGORIES = (22, 3)  # in their place, or by number
# Its flows, and where they stood before.
_FLOWS, _FLOW_ENDS = (47, 36), (48, 42)
_BEGIN, _END = 1, 2  # types of events
CORRELATIONS = ("corr_id", "correlation", "correlation_id")
_NOTED = frozenset((*CORRELATIONS, "begin_ns", "end_ns"))  # what else slices say is not read
_MOST_SEQUENCES = 1 << 12  # a writer is a thread of a process
_FURTHEST = 1 << 62  # ns; later than any clock
NOT_KNOWN = -1  # no time, position or number of a call
_SHORT_BYTES = 128  # of a packet with a writer, and an event with a type, a track and names
_MOST_SEEN = 1 << 10  # different ones that are remembered: a program has some hundred
_64_BITS = (1 << 64) - 1


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
_Known = tuple[_Event, Sequence, int]  # what a packet said, its writer, and the number of its clock


@dataclass
class _Shape:
    """Where the last packet of one length had its name, and what stood around it there.

    What stands before a name says how long it is: the same bytes before it and behind it are the
    same packet but for the name.
    """

    begin: int
    end: int
    around: dict[bytes, _Known] = field(default_factory=dict)


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
    sequences: dict[int, Sequence] = field(default_factory=dict)
    open_on: dict[int, int] = field(default_factory=dict)  # the last slice begun on a track
    below: "array[int]" = field(default_factory=lambda: array("q"))  # the one begun before it
    # What short packets said, behind their times; until anything is told that they may refer to.
    seen: dict[bytes | None, _Known] = field(default_factory=dict)
    shapes: dict[int, _Shape] = field(default_factory=dict)  # by the length of what is remembered


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
    data, at, time = reading.data, start, 0
    timed = at < end and data[at] == _TIME_FIRST
    if timed:
        time, at = _first(data, start + 1, end)
    if end - at > _SHORT_BYTES:
        _new(reading, at, end, time if timed else None)
        return
    short = data[at:end]
    known = reading.seen.get(short)
    name = None
    if known is None and (shape := reading.shapes.get(end - at)) is not None:
        known = shape.around.get(short[: shape.begin] + short[shape.end :])
        name = short[shape.begin : shape.end].decode("utf-8", "replace")
    if known is None:
        _new(reading, at, end, time if timed else None)
        return
    event, sequence, clock = known
    at_ns = time_ns(time, clock, sequence) if timed else 0
    _event(reading, event, event.name if name is None else name, at_ns)


def _new(reading: _Reading, at: int, end: int, time: int | None) -> None:
    """A packet like none before it; ``time`` is what it began with."""
    data = reading.data
    held = {part[0]: part for part in parts(data, at, end)}
    remember = _TIME not in held and end - at <= _SHORT_BYTES
    if _TIME in held:
        time = number_of(held[_TIME])
    number = integer(held, _SEQUENCE)
    found = reading.sequences.get(number)
    cleared = found is None or integer(held, _FLAGS) & 1 or integer(held, _CLEARED)
    if found is None or cleared:
        sequence = Sequence(clocks={} if found is None else found.clocks)
        reading.sequences[number] = sequence
        bounded(reading.sequences, _MOST_SEQUENCES, "writers")
    else:
        sequence = found
    # What an event refers to may stand in its own packet.
    if told(data, held, sequence, reading.found.tracks) or cleared:
        reading.seen.clear()
        reading.shapes.clear()
        remember = False
    clock = integer(held, CLOCK) or sequence.clock
    at_ns = 0 if time is None else time_ns(time, clock, sequence)
    event = _said(data, held[EVENT], sequence) if EVENT in held else _NOTHING
    _event(reading, event, event.name, at_ns)
    if remember:
        named = _only_name(data, held[EVENT]) if EVENT in held else None
        _remember(reading, at, end, named, (event, sequence, clock))


def _remember(reading: _Reading, at: int, end: int, named: Part | None, known: _Known) -> None:
    """Packets with a name are known by what stands around it, others by all that they hold."""
    short = reading.data[at:end]
    if named is None:
        if len(reading.seen) < _MOST_SEEN:
            reading.seen[short] = known
        return
    begin, stop = named[1] - at, named[2] - at
    shape = reading.shapes.get(len(short))
    if shape is None or (shape.begin, shape.end) != (begin, stop):
        shape = reading.shapes[len(short)] = _Shape(begin, stop)
    if len(shape.around) < _MOST_SEEN:
        shape.around[short[:begin] + short[stop:]] = known


def _only_name(data: bytes, message: Part) -> Part | None:
    """Where an event says its name in its place, if it does so once and not by number."""
    names = [part for part in inside(data, message) if part[0] in (_NAME, _INTERNED_NAME)]
    one = len(names) == 1 and names[0][0] == _NAME and names[0][2] != INTEGER
    return names[0] if one else None


def _first(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number that a packet begins with, and where it ends."""
    try:
        number, at = number_at(data, at)
    except IndexError:
        at = end + 1
    if at > end:
        raise MalformedMessage("cut off")
    return number, at


def _said(data: bytes, message: Part, sequence: Sequence) -> _Event:
    kind, track, name = 0, sequence.track, ""
    categories: list[str] = []
    notes: dict[str, int] = {}
    flows: list[int] = []
    flow_ends: list[int] = []
    for part in inside(data, message):
        number = part[0]
        if number == _TYPE:
            kind = number_of(part)
        elif number == OF_TRACK:
            track = number_of(part)
        elif number in (_NAME, _INTERNED_NAME):
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
    return interned.get(part[1], "") if part[2] == INTEGER else text_of(data, part)


def _event(reading: _Reading, event: _Event, name: str, at_ns: int) -> None:
    """Put a begin on its track, or end the last one that is open there."""
    found = reading.found
    at = min(max(at_ns, NOT_KNOWN), _FURTHEST)
    if event.kind == _BEGIN:
        row = len(found.track)
        found.track.append(event.track)
        found.begin_ns.append(at)
        found.end_ns.append(NOT_KNOWN)
        found.name.append(found.texts.id_of(name))
        found.category.append(found.texts.id_of(event.category))
        bounded(found.texts, MOST_NAMES, "names")
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


def _note(data: bytes, message: Part, sequence: Sequence, notes: dict[str, int]) -> None:
    name = ""
    value: Value | None = None
    for part in inside(data, message):
        number = part[0]
        if number == 10:
            name = text_of(data, part)
        elif number == 1:
            name = sequence.notes.get(number_of(part), "")
        elif number in (2, 3, 7):
            value = number_of(part)
        elif number == 4:
            value = number_of(part) - (1 << 64) if number_of(part) >> 63 else number_of(part)
        elif number == 5:
            value = real(data, part)
        elif number == 6:
            value = text_of(data, part)
        elif number == 17:
            value = sequence.texts.get(number_of(part))
    if name in _NOTED and (whole := _whole(value)) is not None:
        notes[name] = whole


def _whole(value: Value | None) -> int | None:
    if isinstance(value, int):
        return value if 0 <= value < _FURTHEST else None
    text = value if isinstance(value, str) else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None
