"""The frame around the events: a bare list, or an object with facts before and after them."""

from collections.abc import Iterator
from dataclasses import field
from enum import Enum
from typing import Any

import msgspec

from pinchpoint.errors import HostileFile, NotThisFormat, UnreadableFile
from pinchpoint.frozen import dataclass
from pinchpoint.importers.kineto.reading.lenient import (
    BOUNDARY,
    Incomplete,
    Malformed,
    decimal,
    key_at,
    skip_blanks,
    skip_separators,
    skip_value,
)
from pinchpoint.importers.kineto.reading.text import Text

FRAME_BYTES = 64 << 20  # far more than any recorder writes outside the list of events
_PAGE_BYTES = 4096  # the least page of file systems, of which a crash leaves whole ones empty
_TRAILER_BYTES = 1 << 20  # what recorders write after it is some kilobytes
MOST_MEMBERS = 10_000  # outside the events; recorders write some twenty, and a fact for each device
EVENT_BYTES = 32 << 20  # a longer event is taken for broken text
EVENTS = b"traceEvents"
_REACHES = (1 << 14, 1 << 18)  # how far back from the end of a block its last event is sought
RECORD_AGAIN = (
    "give a trace, as torch.profiler's export_chrome_trace writes it, or record one:"
    " pinchpoint run python train.py"
)


@dataclass
class DocumentFrame:
    """What a document says outside its events."""

    members: dict[str, Any] = field(default_factory=dict)
    duplicates: list[str] = field(default_factory=list)  # keys that occur twice
    bare_list: bool = False

    @property
    def count(self) -> int:
        """How many members were read."""
        return len(self.members) + len(self.duplicates)


def open_events(text: Text, frame: DocumentFrame) -> bytes:
    """Read up to the list of events; returns the text after its opening bracket.

    Raises UnreadableFile if there is no such list.
    """
    buffer = _start(text)
    if buffer[:1] == b"[":
        frame.bare_list = True
        return buffer[1:]
    wanted = 1 << 16
    while True:
        at, found = _read_members(buffer, 1, frame)
        if found:
            return buffer[at:]
        whole = buffer[at : at + 1] == b"}"
        _refuse_crowd(text, frame)
        if len(buffer) >= FRAME_BYTES:
            raise HostileFile(
                f"{text.path}: no events in the first {FRAME_BYTES >> 20} MB", hint=RECORD_AGAIN
            )
        more = _read_at_least(text, wanted)
        if not more:
            raise _no_events(text, frame, whole)
        buffer += more
        wanted = len(buffer)
        frame.members.clear()
        frame.duplicates.clear()


def _refuse_crowd(text: Text, frame: DocumentFrame) -> None:
    if frame.count > MOST_MEMBERS:
        raise HostileFile(
            f"{text.path}: more than {MOST_MEMBERS:,} members beside the list of events",
            hint=RECORD_AGAIN,
        )


def _start(text: Text) -> bytes:
    buffer = text.read(1 << 16)
    if buffer[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in buffer[:4]:
        raise UnreadableFile(
            f"{text.path}: the text is UTF-16 or binary, not UTF-8",
            hint="save it as UTF-8; PowerShell: Get-Content FILE | Set-Content -Encoding utf8 NEW",
        )
    buffer = buffer.removeprefix(b"\xef\xbb\xbf")
    while (at := skip_blanks(buffer, 0, len(buffer))) == len(buffer):
        if text.bytes_out > FRAME_BYTES:
            raise HostileFile(f"{text.path}: nothing but blanks", hint=RECORD_AGAIN)
        buffer = text.read(1 << 16)
        if not buffer:
            raise UnreadableFile(f"{text.path}: the file holds no text", hint=RECORD_AGAIN)
    buffer = buffer[at:]
    if buffer[:1] not in (b"{", b"["):
        raise NotThisFormat(f"{text.path}: not JSON", hint=RECORD_AGAIN)
    return buffer


def _read_at_least(text: Text, size: int, piece_bytes: int = 1 << 20) -> bytes:
    pieces, length = [], 0
    while length < size and (piece := text.read(piece_bytes)):
        pieces.append(piece)
        length += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _no_events(text: Text, frame: DocumentFrame, whole: bool) -> UnreadableFile:
    if text.damage:
        return UnreadableFile(
            f"{text.path}: {text.damage}, before the first event", hint="copy it again"
        )
    if not whole:
        return NotThisFormat(
            f"{text.path}: the JSON is cut off or broken before the first event",
            hint="copy it again, or record it again",
        )
    keys = ", ".join(list(frame.members)[:5])
    about = f" (its keys: {keys})" if keys else ""
    return NotThisFormat(
        f"{text.path}: JSON without a list of traceEvents{about}", hint=RECORD_AGAIN
    )


def _read_members(buffer: bytes, at: int, frame: DocumentFrame) -> tuple[int, bool]:
    """Collect members until the events begin; (position, whether they did). May be Boundless."""
    end = len(buffer)
    try:
        while frame.count <= MOST_MEMBERS and (at := skip_separators(buffer, at, end)) < end:
            key, value = key_at(buffer, at, end)
            if key == EVENTS and buffer[value : value + 1] == b"[":
                return value + 1, True
            at = skip_value(buffer, value, end, bounded=True)
            name = key.decode("utf-8", "replace")
            if name in frame.members:
                frame.duplicates.append(name)
            frame.members[name] = value_of(buffer[value:at])
    except (Incomplete, Malformed):
        pass
    return at, False


def close_events(text: Text, rest: bytes, frame: DocumentFrame) -> None:
    """Read what follows the events; ``rest`` begins after their closing bracket."""
    if frame.bare_list:
        return
    before, buffer, wanted = frame.members, rest, _TRAILER_BYTES
    while True:
        more = _read_at_least(text, wanted)
        buffer += more
        after = DocumentFrame()
        whole = _read_trailer(buffer, after)
        _refuse_crowd(text, after)
        if whole or not more or len(buffer) >= FRAME_BYTES:
            break
        wanted = min(3 * len(buffer), FRAME_BYTES - len(buffer))
    frame.duplicates += [*after.duplicates, *(name for name in after.members if name in before)]
    frame.members |= after.members


def _read_trailer(buffer: bytes, frame: DocumentFrame) -> bool:
    """Whether the document ends here: a file may go on with anything, such as blocks of zeros that
    a disk left after a crash."""
    at = 0
    while True:
        at, again = _read_members(buffer, at, frame)
        if not again:
            return buffer[at : at + 1] == b"}"
        # a second list of events: its text is skipped, the first one counts
        frame.duplicates.append(EVENTS.decode())
        try:
            at = skip_value(buffer, at - 1, len(buffer), bounded=True)
        except Incomplete:
            return False


def value_of(token: bytes) -> Any:
    """A value of the frame as Python data; broken text stays text, non-numbers become None."""
    try:
        return msgspec.json.decode(token)
    except (msgspec.DecodeError, RecursionError, ValueError):
        pass
    if token[:1] == b'"':
        return token[1:-1].decode("utf-8", "replace")
    if decimal(token, 0) is None:
        return None
    return token.decode("utf-8", "replace")


class BlockEnd(Enum):
    """Where a block of text ends."""

    BOUNDARY = 1  # where an event seems to begin
    ANYWHERE = 2  # no event seems to begin in a long stretch
    FILE = 3


@dataclass(frozen=True)
class Block:
    """A stretch of the events: ``text[:stop]``. What follows in ``text[:filled]`` comes next."""

    text: bytearray
    stop: int
    filled: int
    end: BlockEnd


class Blocks:
    """Cuts the text of the events into blocks of about ``size`` bytes.

    Buffers are used again: whoever is done with a block gives it back.
    """

    def __init__(self, text: Text, rest: bytes, size: int) -> None:
        self._text = text
        self._carry = rest
        self._size = size
        self._free: list[bytearray] = []

    def __iter__(self) -> Iterator[Block]:
        while True:
            block = self._next()
            self._carry = bytes(memoryview(block.text)[block.stop : block.filled])
            yield block
            if block.end is BlockEnd.FILE:
                return

    def give_back(self, block: Block) -> None:
        """Let the buffer of a block be filled anew."""
        if len(block.text) == self._size:
            self._free.append(block.text)

    def _next(self) -> Block:
        filled, wanted = len(self._carry), self._size
        buffer = self._free.pop() if self._free else bytearray(self._size)
        if 2 * filled > wanted:
            wanted = 2 * filled
            buffer = bytearray(wanted)
        buffer[:filled] = self._carry
        while True:
            more = self._text.readinto(memoryview(buffer)[filled:])
            filled += more
            if not more:
                return Block(buffer, filled, filled, BlockEnd.FILE)
            at = _last_boundary(buffer, filled)
            if at:
                return Block(buffer, at, filled, BlockEnd.BOUNDARY)
            if filled >= EVENT_BYTES or _is_hole(buffer, filled):
                return Block(buffer, filled, filled, BlockEnd.ANYWHERE)
            if filled == len(buffer):  # a long event: twice the room each time is linear time
                buffer = buffer + bytearray(len(buffer))


def _is_hole(buffer: bytearray, filled: int) -> bool:
    """Whether it ends in zero bytes, which no JSON has: a disk leaves pages of them after a crash,
    up to gigabytes where a file was to grow. What comes before them is no long event."""
    return buffer.count(0, max(0, filled - _PAGE_BYTES), filled) == _PAGE_BYTES


def _last_boundary(buffer: bytearray, filled: int) -> int:
    """Where the last event of the buffer seems to begin; 0 if that is far from the end."""
    for reach in _REACHES:
        found = 0
        for match in BOUNDARY.finditer(buffer, max(0, filled - reach), filled):
            found = match.end()
        if found or reach >= filled:
            return found
    return 0
