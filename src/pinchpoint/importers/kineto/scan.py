"""From text to the columns of each lane: what both scanners share."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from pinchpoint.errors import HostileFile
from pinchpoint.importers.kineto.document import EVENT_BYTES, BlockEnd, blocks
from pinchpoint.importers.kineto.fields import Lane
from pinchpoint.importers.kineto.lenient import BOUNDARY, BOUNDARY_BYTES, Status
from pinchpoint.importers.kineto.text import Text

Array = NDArray[Any]

# Blank text costs a gzip nothing; no recorder writes this much before its first event.
EMPTY_TEXT_BYTES = 256 << 20
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


class Scanner(Protocol):
    """Turns text into chunks; one for each thread that scans."""

    name: str
    block_bytes: int  # the size of block that suits it

    def scan(self, text: bytes, at: int, limit: int) -> tuple[Status, int]:
        """Read events from ``at`` on; how it ended, and where.

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
    skipped: int = 0  # stretches of text that are no events
    ended: bool = False  # the list of events was closed
    rest: bytes = b""  # the text after the closing bracket

    @property
    def events(self) -> int:
        """Events that were read."""
        return sum(chunk.events for chunk, _ in self.chunks)


def walk(scanner: Scanner, block: bytes, end: BlockEnd, limit: int, seeking: bool = False) -> Walk:
    """Scan a block from its start, passing over what is no event.

    Broken text is skipped up to the next place that looks like the beginning of an event. An
    event that does not end in the block stays for the next one, unless the file ends.

    A quote too many turns text inside out, and the event seems to go on for ever. Trying costs
    ``limit`` bytes, so each time it happens the limit shrinks: a file full of such events still
    takes linear time.
    """
    at, skipped = 0, 0
    if seeking:
        at = _next_boundary(block, 0)
        if at < 0:
            return Walk(max(0, len(block) - BOUNDARY_BYTES), limit, seeking=True)
    while True:
        status, at = scanner.scan(block, at, limit)
        if status is Status.DONE:
            return Walk(at + 1, limit, ended=True, skipped=skipped)
        if at >= len(block) or (status is Status.MORE and end is not BlockEnd.FILE):
            return Walk(at, limit, skipped=skipped)
        if status is Status.LONG:
            limit = max(limit // 32, SMALLEST_LIMIT)
        following = _next_boundary(block, at + 1)
        if following < 0:
            cut_off = status is Status.MORE  # the end of the file cuts the last event
            seeking = end is BlockEnd.ANYWHERE
            return Walk(len(block), limit, skipped=skipped + (not cut_off), seeking=seeking)
        skipped += 1
        at = following


def _next_boundary(block: bytes, at: int) -> int:
    found = BOUNDARY.search(block, at)
    return found.end() if found else -1


def scan_in_order(scanner: Scanner, text: Text, rest: bytes) -> Scanned:
    """Scan a whole file with one scanner."""
    scanned = Scanned()
    carry, wanted, seeking, limit = b"", 0, False, EVENT_BYTES
    for piece, end in blocks(text, rest, scanner.block_bytes):
        block = carry + piece
        if len(block) < wanted and end is not BlockEnd.FILE:
            carry = block
            continue
        done = walk(scanner, block, end, limit, seeking)
        scanned.chunks.append((scanner.flush(), 0))
        scanned.skipped += done.skipped
        carry, seeking, limit = block[done.consumed :], done.seeking, done.limit
        wanted = 2 * len(carry)  # else a long event is scanned again with every block
        if done.ended:
            scanned.ended, scanned.rest = True, carry
            break
        refuse_emptiness(text, scanned)
    scanned.texts.append(scanner.texts())
    return scanned


def refuse_emptiness(text: Text, scanned: Scanned) -> None:
    """Stop at a file that unpacks to endless text without any event."""
    if text.bytes_out > EMPTY_TEXT_BYTES and not scanned.events:
        raise HostileFile(
            f"{text.path}: unpacks to more than {EMPTY_TEXT_BYTES >> 20} MB without one event",
            hint="this is no recording; get the file again from where it was made",
        )
