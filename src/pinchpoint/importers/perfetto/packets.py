"""The packets of a Perfetto trace as slices: begins and ends joined, names and clocks resolved.

Field numbers are those of the published ``perfetto_trace.proto``. Names are interned for each
sequence of packets until it says that its state is cleared; times may count from the packet before.
"""

from dataclasses import field

from pinchpoint.frozen import dataclass
from pinchpoint.importers._wire import FIXED64, Field, MalformedMessage, fields

Value = int | float | str

_PACKET = 1  # of a trace
# Fields of a packet.
_CLOCKS, _TIME, _SEQUENCE, _EVENT, _INTERNED, _FLAGS = 6, 8, 10, 11, 12, 13
# The rest of them.
_CLEARED, _CLOCK, _DEFAULTS, _TRACK = 41, 58, 59, 60
# Fields of an event.
_CATEGORY_ID, _NOTE, _TYPE, _NAME_ID, _OF_TRACK, _CATEGORY, _NAME = 3, 4, 9, 10, 11, 22, 23
# Its flows, and where they stood before.
_FLOW, _FLOW_END, _OLD_FLOW, _OLD_FLOW_END = 47, 48, 36, 42
_BEGIN, _END = 1, 2  # types of events
_DEFAULT_CLOCK = 6  # since boot
_LEAST_OF_SEQUENCE = 64  # clocks of a sequence's own


@dataclass(frozen=True)
class Track:
    """A lane: a thread, a queue of a device, or any line that a program drew."""

    name: str = ""
    parent: int | None = None
    process: int | None = None
    process_name: str = ""
    thread: int | None = None


@dataclass
class Slice:
    """One stretch of time on a track; ``end_ns`` None where its end was not recorded."""

    track: int
    name: str
    category: str
    begin_ns: int
    end_ns: int | None = None
    notes: dict[str, Value] = field(default_factory=dict)
    flows: tuple[int, ...] = ()
    flow_ends: tuple[int, ...] = ()


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


@dataclass
class Slices:
    """All that a trace shows."""

    slices: list[Slice] = field(default_factory=list)
    tracks: dict[int, Track] = field(default_factory=dict)
    packets: int = 0
    unmatched: int = 0  # ends without a begin
    cut_off: bool = False


def read_slices(trace: memoryview) -> Slices:
    """Every slice; what stands behind a cut or a broken packet is left out and said."""
    found = Slices()
    sequences: dict[int, _Sequence] = {}
    open_on: dict[int, list[Slice]] = {}
    try:
        for packet in fields(trace):
            if packet.number == _PACKET:
                found.packets += 1
                _packet(packet.bytes, found, sequences, open_on)
    except MalformedMessage:
        found.cut_off = True
    return found


def _packet(
    message: memoryview,
    found: Slices,
    sequences: dict[int, _Sequence],
    open_on: dict[int, list[Slice]],
) -> None:
    parts = {part.number: part for part in fields(message)}
    sequence = sequences.setdefault(_integer(parts, _SEQUENCE), _Sequence())
    if _integer(parts, _FLAGS) & 1 or _integer(parts, _CLEARED):
        sequence = sequences[_integer(parts, _SEQUENCE)] = _Sequence(clocks=sequence.clocks)
    if _DEFAULTS in parts:
        _defaults(parts[_DEFAULTS].bytes, sequence)
    if _CLOCKS in parts:
        _clocks(parts[_CLOCKS].bytes, sequence)
    if _INTERNED in parts:
        _interned(parts[_INTERNED].bytes, sequence)
    if _TRACK in parts:
        number, track = _track(parts[_TRACK].bytes)
        found.tracks[number] = track
    time_ns = _time(parts, sequence) if _TIME in parts else 0
    if _EVENT in parts:
        _event(parts[_EVENT].bytes, time_ns, sequence, found, open_on)


def _integer(parts: dict[int, Field], number: int) -> int:
    return parts[number].integer if number in parts else 0


def _defaults(message: memoryview, sequence: _Sequence) -> None:
    for part in fields(message):
        if part.number == _CLOCK:
            sequence.clock = part.integer
        elif part.number == _EVENT:
            for inner in fields(part.bytes):
                if inner.number == _OF_TRACK:
                    sequence.track = inner.integer


def _clocks(message: memoryview, sequence: _Sequence) -> None:
    read: dict[int, _Clock] = {}
    for part in fields(message):
        if part.number == 1:
            parts = {inner.number: inner for inner in fields(part.bytes)}
            clock = _Clock(_integer(parts, 2), _integer(parts, 4) or 1, bool(_integer(parts, 3)))
            read[_integer(parts, 1)] = clock
    boot = read.get(_DEFAULT_CLOCK)
    for number, clock in read.items():
        if number >= _LEAST_OF_SEQUENCE:
            clock.offset_ns = boot.at - clock.at * clock.unit_ns if boot else 0
            sequence.clocks[number] = clock


def _time(parts: dict[int, Field], sequence: _Sequence) -> int:
    at = parts[_TIME].integer
    clock = sequence.clocks.get(_integer(parts, _CLOCK) or sequence.clock)
    if clock is None:
        return at
    if clock.incremental:
        clock.at += at
        at = clock.at
    return at * clock.unit_ns + clock.offset_ns


def _interned(message: memoryview, sequence: _Sequence) -> None:
    kept = {1: sequence.categories, 2: sequence.names, 3: sequence.notes, 29: sequence.texts}
    for part in fields(message):
        if part.number in kept:
            entry = {inner.number: inner for inner in fields(part.bytes)}
            if 1 in entry and 2 in entry:
                kept[part.number][entry[1].integer] = entry[2].text


def _track(message: memoryview) -> tuple[int, Track]:
    parts = {part.number: part for part in fields(message)}
    process = {p.number: p for p in fields(parts[3].bytes)} if 3 in parts else {}
    thread = {p.number: p for p in fields(parts[4].bytes)} if 4 in parts else {}
    named = next((parts[n].text for n in (2, 10) if n in parts), "")
    thread_name = thread[5].text if 5 in thread else ""
    known = _integer(process, 1) or _integer(thread, 1)
    return _integer(parts, 1), Track(
        name=named or thread_name,
        parent=parts[5].integer if 5 in parts else None,
        process=known or None,
        process_name=process[6].text if 6 in process else "",
        thread=thread[2].integer if 2 in thread else None,
    )


def _event(
    message: memoryview,
    time_ns: int,
    sequence: _Sequence,
    found: Slices,
    open_on: dict[int, list[Slice]],
) -> None:
    made = Slice(sequence.track, "", "", time_ns)
    kind, categories = 0, []
    flows: list[int] = []
    flow_ends: list[int] = []
    for part in fields(message):
        if part.number == _TYPE:
            kind = part.integer
        elif part.number == _OF_TRACK:
            made.track = part.integer
        elif part.number in (_NAME, _NAME_ID):
            made.name = part.text if part.number == _NAME else sequence.names.get(part.integer, "")
        elif part.number == _CATEGORY:
            categories.append(part.text)
        elif part.number == _CATEGORY_ID:
            categories.append(sequence.categories.get(part.integer, ""))
        elif part.number == _NOTE:
            _note(part.bytes, sequence, made.notes)
        elif part.number in (_FLOW, _OLD_FLOW):
            flows.append(_identity(part))
        elif part.number in (_FLOW_END, _OLD_FLOW_END):
            flow_ends.append(_identity(part))
    made.category, made.flows, made.flow_ends = ",".join(categories), tuple(flows), tuple(flow_ends)
    _joined(made, kind, found, open_on)


def _joined(made: Slice, kind: int, found: Slices, open_on: dict[int, list[Slice]]) -> None:
    """Put a begin on its track, or end the last one that is open there."""
    waiting = open_on.setdefault(made.track, [])
    if kind == _BEGIN:
        waiting.append(made)
        found.slices.append(made)
    elif kind == _END and waiting:
        begun = waiting.pop()
        begun.end_ns = made.begin_ns
        begun.notes |= made.notes
        begun.flows += made.flows
        begun.flow_ends += made.flow_ends
    elif kind == _END:
        found.unmatched += 1


def _identity(part: Field) -> int:
    return int.from_bytes(part.bytes, "little") if part.kind == FIXED64 else part.integer


def _note(message: memoryview, sequence: _Sequence, notes: dict[str, Value]) -> None:
    name = ""
    value: Value | None = None
    for part in fields(message):
        if part.number == 10:
            name = part.text
        elif part.number == 1:
            name = sequence.notes.get(part.integer, "")
        elif part.number in (2, 3, 7):
            value = part.integer
        elif part.number == 4:
            value = part.integer - (1 << 64) if part.integer >> 63 else part.integer
        elif part.number == 5:
            value = part.real
        elif part.number == 6:
            value = part.text
        elif part.number == 17:
            value = sequence.texts.get(part.integer)
    if name and value is not None:
        notes[name] = value
