"""From text to the columns of each lane: what both scanners share."""

from collections.abc import Sequence
from dataclasses import field
from typing import Protocol

import numpy as np

from pinchpoint.errors import HostileFile, OutOfMemory
from pinchpoint.frozen import dataclass
from pinchpoint.importers.kineto.reading.document import EVENT_BYTES, Block, BlockEnd, Blocks
from pinchpoint.importers.kineto.reading.fields import Lane
from pinchpoint.importers.kineto.reading.lenient import BOUNDARY, BOUNDARY_BYTES, Status
from pinchpoint.importers.kineto.reading.text import Text
from pinchpoint.trace.arrays import Array, of_rows
from pinchpoint.trace.window import Part

Buffer = bytes | bytearray
Place = tuple[bytes | None, bytes | None]  # process and thread as they are written

# Blank text costs a gzip nothing; no recorder writes this much before its first event.
EMPTY_TEXT_BYTES = 128 << 20  # four of the longest events; looking further takes memory
SMALLEST_LIMIT = 4096  # ten times the usual event


@dataclass
class Chunk:
    """The events of one stretch of text, in columns by lane.

    Interned columns hold positions in the scanner's ``texts``; ``fields.NULL`` is an absent
    value (narrow columns: the least number of their type). ``event`` columns count from the
    first event of the chunk.
    """

    lanes: dict[Lane, dict[str, Array]]
    events: int
    raw: list[tuple[int, bytes]]  # rare events as text, with their position
    untimed: int = 0
    unread: int = 0

    @property
    def rows(self) -> int:
        """Events that say something."""
        return len(self.raw) + sum(len(columns["event"]) for columns in self.lanes.values())


class Scanner(Protocol):
    """Turns text into chunks; one for each thread that scans.

    It is made with the positions in the file of events that are ``wanted`` as text; the chunks'
    ``raw`` then has them as well. Of a label that a chunk repeats, the first and the last are
    enough. With ``keeps_arguments``, host events without a category have their arguments.
    """

    def scan(self, text: Buffer, at: int, stop: int, limit: int) -> tuple[Status, int]:
        """Read events of ``text[at:stop]``; how it ended, and where.

        Unless all text was read, the position is that of the event that could not be read.
        An event of more than ``limit`` bytes is not read.
        """
        ...

    def flush(self) -> Chunk:
        """The events since the last flush."""
        ...

    def texts(self) -> list[bytes]:
        """What the interned columns refer to."""
        ...

    def places(self) -> list[Place]:
        """What the place columns refer to."""
        ...


@dataclass
class Walk:
    """Where a scanner stopped in one block."""

    consumed: int
    limit: int
    ended: bool = False
    skipped: int = 0
    seeking: bool = False  # broken text reached the end of the block


@dataclass
class Scanned:
    """All chunks of a file in order, and how the reading went."""

    chunks: list[tuple[Chunk, int]] = field(default_factory=list)  # with position of the scanner
    texts: list[list[bytes]] = field(default_factory=list)  # of each scanner
    places: list[list[Place]] = field(default_factory=list)  # of each scanner
    skipped: int = 0  # stretches of text that are no events
    ended: bool = False  # the list of events was closed
    rest: bytes = b""  # the text after the closing bracket
    keeps_arguments: bool = False

    rows: int = 0  # of all lanes, and rare events
    left_out: "Sieve | None" = None  # where only a part of the time is kept: what was seen of all


def walk(scanner: Scanner, block: Block, limit: int, seeking: bool = False) -> Walk:
    """Scan a block from its start, passing over what is no event.

    Broken text is skipped up to the next place that looks like the beginning of an event. An
    event that does not end in the block stays for the next one, unless the file ends.

    A quote too many turns text inside out, and the event seems to go on for ever. Trying costs
    ``limit`` bytes, so each time it happens the limit shrinks: a file full of such events still
    takes linear time.
    """
    at, skipped, text, stop = 0, 0, block.text, block.stop
    if seeking:
        at = _next_boundary(text, 0, stop)
        if at < 0:
            return Walk(max(0, stop - BOUNDARY_BYTES), limit, seeking=True)
    while True:
        status, at = scanner.scan(text, at, stop, limit)
        if status is Status.DONE:
            return Walk(at + 1, limit, ended=True, skipped=skipped)
        if at >= stop or (status is Status.MORE and block.end is not BlockEnd.FILE):
            return Walk(at, limit, skipped=skipped)
        if status is Status.LONG:
            limit = max(limit // 32, SMALLEST_LIMIT)
        following = _next_boundary(text, at + 1, stop)
        if following < 0:
            cut_off = status is Status.MORE  # the end of the file cuts the last event
            seeking = block.end is BlockEnd.ANYWHERE
            return Walk(stop, limit, skipped=skipped + (not cut_off), seeking=seeking)
        skipped += 1
        at = following


def _next_boundary(text: Buffer, at: int, stop: int) -> int:
    found = BOUNDARY.search(text, at, stop)
    return found.end() if found else -1


@dataclass
class Early:
    """A block that was scanned before the one in front of it was done."""

    walk: Walk
    chunk: Chunk
    scanner: int
    limit: int  # that it was scanned with


class Joiner:
    """Puts scanned blocks together in order; scans again what was scanned too early.

    That a block begins with an event is a guess. It is right if the block before it was used up;
    else the rest of that block goes in front, and both are scanned again.
    """

    def __init__(
        self, scanner: Scanner, position: int = 0, *, sieve: "Sieve | None" = None
    ) -> None:
        self.scanned = Scanned()
        self._sieve = sieve
        self.limit = EVENT_BYTES
        self._scanner = scanner
        self._position = position
        self._carry = b""
        self._wanted = 0
        self._seeking = False
        self._last = Block(bytearray(), 0, 0, BlockEnd.FILE)

    def add(self, block: Block, early: Early | None = None) -> bool:
        """Take the next block; False once the list of events has ended."""
        if early is None or self._carry or self._seeking or early.limit != self.limit:
            early = self._scan(block)
            if early is None:
                return True
        else:
            self._carry = bytes(memoryview(block.text)[early.walk.consumed : block.stop])
        done = early.walk
        self.scanned.chunks.append((early.chunk, early.scanner))
        self.scanned.rows += early.chunk.rows
        if self._sieve is not None:
            self._sieve.take(self.scanned)
        self.scanned.skipped += done.skipped
        self._seeking, self.limit = done.seeking, done.limit
        self._wanted = 2 * len(self._carry)
        self._last = block
        self.scanned.ended = done.ended
        return not done.ended

    def finish(self, ahead: Sequence[Block], scanners: Sequence[Scanner]) -> Scanned:
        """The result; ``ahead`` are blocks that were read and not added."""
        self.scanned.texts = [scanner.texts() for scanner in scanners]
        self.scanned.places = [scanner.places() for scanner in scanners]
        if self.scanned.ended:
            unread = b"".join(block.text[: block.stop] for block in ahead)
            last = ahead[-1] if ahead else self._last
            self.scanned.rest = self._carry + unread + last.text[last.stop : last.filled]
        return self.scanned

    def _scan(self, block: Block) -> Early | None:
        if self._carry:
            text = bytearray(self._carry) + memoryview(block.text)[: block.stop]
            if len(text) < self._wanted and block.end is not BlockEnd.FILE:
                self._carry = bytes(text)  # else a long event is scanned again with every block
                return None
            block = Block(text, len(text), len(text), block.end)
        done = walk(self._scanner, block, self.limit, self._seeking)
        self._carry = bytes(memoryview(block.text)[done.consumed : block.stop])
        return Early(done, self._scanner.flush(), self._position, self.limit)


def scan_in_order(
    scanner: Scanner, text: Text, rest: bytes, block_bytes: int, part: Part | None = None
) -> Scanned:
    """Scan a whole file with one scanner."""
    joiner = Joiner(scanner, sieve=Sieve(text, part))
    blocks = Blocks(text, rest, block_bytes)
    for block in blocks:
        if not joiner.add(block):
            break
        blocks.give_back(block)
        refuse_emptiness(text, joiner.scanned)
    return joiner.finish((), [scanner])


def refuse_emptiness(text: Text, scanned: Scanned) -> None:
    """Stop at a file that unpacks to endless text without any event that says something."""
    if text.bytes_out > EMPTY_TEXT_BYTES and not scanned.rows:
        raise HostileFile(
            f"{text.path}: unpacks to more than {EMPTY_TEXT_BYTES >> 20} MB without one event",
            hint="this is no recording; get the file again from where it was made",
        )


# ------------------------------------------------------------------------------------------------
# Of a large file only the part of its time that is asked for, and no more than there is room for.


# Up to here all is kept: some 1.5 GB of text, which take 0.5 GB.
MANY_ROWS = 4_000_000
# What is kept on both sides of the part. Its device work may run that much later than it was
# launched (queues hold 1,024 launches, of 10 ms each), and files are out of order by less.
_BESIDE_NS = 10 * 10**9
# Memory that tables take beside what was scanned: measured on 13 million events, rounded up.
_ROOM_FOR_A_ROW = 100
_LOOKS_EVERY = 64  # chunks, of 2 MB of text each
FURTHEST_NS = 1 << 61  # as clock.py has it: a time beyond is damage, which is counted there
_SPANS = (Lane.HOST, Lane.API, Lane.DEVICE)


class Sieve:
    """Keeps what lies in a part of the time, once a file turns out to be large."""

    def __init__(self, text: Text, part: Part | None) -> None:
        self.earliest_ns = self.first_ns = int(np.iinfo(np.int64).max)  # of all lanes; of spans
        self.latest_ns = int(np.iinfo(np.int64).min)
        self.misjudged = False  # an event came that shows that others were left out wrongly
        self._text, self.part = text, part
        self._seen = self._sifted = 0  # chunks
        self._first_when_sifted_ns: int | None = None

    def take(self, scanned: Scanned) -> None:
        """Look at the chunk that was added last, and sift those that were not."""
        self._note(scanned.chunks[-1][0])
        if scanned.rows < MANY_ROWS:
            return
        if self.part is not None and self.part.step is not None:
            from pinchpoint.importers.kineto.reading.marks import part_of_step

            self.part = part_of_step(self._text.path, self.part.step)
        if self.part is not None and self.first_ns < self.latest_ns:
            scanned.left_out = self
            self._first_when_sifted_ns = self._first_when_sifted_ns or self.first_ns
            self.misjudged |= self.first_ns < self._first_when_sifted_ns - _BESIDE_NS
            for chunk, _ in scanned.chunks[self._sifted :]:
                self._sift(chunk, self.part)
            self._sifted = len(scanned.chunks)
        elif not len(scanned.chunks) % _LOOKS_EVERY:
            self._must_have_room(scanned)

    def _note(self, chunk: Chunk) -> None:
        for lane, columns in chunk.lanes.items():
            if lane >= Lane.PAIR or not len(columns["start"]):
                continue
            start = columns["start"]
            first, last = int(start.min()), int(start.max())
            if first <= 0 or last >= FURTHEST_NS:
                start = start[(start != 0) & (np.abs(start) < FURTHEST_NS)]
                if not len(start):
                    continue
                first, last = int(start.min()), int(start.max())
            self.earliest_ns = min(self.earliest_ns, first)
            self.latest_ns = max(self.latest_ns, last)
            if lane in _SPANS:
                self.first_ns = min(self.first_ns, first)

    def _sift(self, chunk: Chunk, part: Part) -> None:
        """Leave out what ends before the part or begins after it.

        The first event seen so far began no earlier than the first of the file.
        """
        since = self.first_ns if part.since_ns is None else part.since_ns
        low = since + part.from_ns - _BESIDE_NS
        high = FURTHEST_NS if part.to_ns is None else since + part.to_ns + _BESIDE_NS
        for lane, columns in chunk.lanes.items():
            if lane >= Lane.PAIR and lane != Lane.COUNTER:
                continue
            start = columns["start"]
            end = start + np.maximum(columns["duration"], 0) if "duration" in columns else start
            odd = (start == 0) | (np.abs(start) >= FURTHEST_NS)
            kept = ((start <= high) & (end >= low)) | odd
            if not kept.all():
                rows = np.flatnonzero(kept)
                chunk.lanes[lane] = {name: of_rows(c, rows) for name, c in columns.items()}

    def _must_have_room(self, scanned: Scanned) -> None:
        """OutOfMemory before the system ends this process without a word."""
        from pinchpoint.importers.files.memory import may_have

        if may_have(_ROOM_FOR_A_ROW * scanned.rows):
            return
        part_ms = max((self.latest_ns - self.first_ns) * MANY_ROWS // (2 * scanned.rows), 10**6)
        raise OutOfMemory(
            self._text.path,
            hint=f"look at a part of it: --from 0ms --to {part_ms // 10**6}ms",
        )
