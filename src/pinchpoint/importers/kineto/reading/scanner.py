"""Which scanner reads a file, and which code finds the nesting of its rows."""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

import msgspec

from pinchpoint.errors import UsageError
from pinchpoint.importers.kineto.reading import nesting
from pinchpoint.importers.kineto.reading.beside import Beside
from pinchpoint.importers.kineto.reading.document import (
    Block,
    Blocks,
    DocumentFrame,
    open_events,
    value_of,
)
from pinchpoint.importers.kineto.reading.fields import ARGUMENTS
from pinchpoint.importers.kineto.reading.lenient import event_at
from pinchpoint.importers.kineto.reading.plain import PlainScanner
from pinchpoint.importers.kineto.reading.scan import (
    Early,
    Joiner,
    Scanned,
    Scanner,
    Sieve,
    refuse_emptiness,
    scan_in_order,
    walk,
)
from pinchpoint.importers.kineto.reading.text import Text
from pinchpoint.importers.open import as_plain_file
from pinchpoint.trace import Trace
from pinchpoint.trace.window import Part

# ------------------------------------------------------------------------------------------------
# Scanning with the compiled scanner on two threads, while this one unpacks the file.


# Imported by name: tools that read imports know no compiled modules.
NativeScanner: Any = import_module("pinchpoint.importers.kineto.native._scan").NativeScanner

THREADS = 2  # unpacking takes a third of a core, so more of them would wait for text
BLOCKS_AHEAD = 3  # text that is held at a time


class _Team:
    """Scanners that take turns."""

    def __init__(self, *, keeps_arguments: bool) -> None:
        self.scanners = [NativeScanner(keeps_arguments=keeps_arguments) for _ in range(THREADS)]
        self._free: SimpleQueue[int] = SimpleQueue()
        for position in range(THREADS):
            self._free.put(position)

    def scan(self, block: Block, limit: int) -> Early:
        position = self._free.get()
        scanner = self.scanners[position]
        try:
            return Early(walk(scanner, block, limit), scanner.flush(), position, limit)
        finally:
            self._free.put(position)


def scan_in_parallel(
    text: Text,
    rest: bytes,
    block_bytes: int,
    part: Part | None = None,
    *,
    keeps_arguments: bool,
) -> Scanned:
    """Scan a whole file."""
    team = _Team(keeps_arguments=keeps_arguments)
    repair = NativeScanner(
        keeps_arguments=keeps_arguments
    )  # for blocks that were scanned too early
    joiner = Joiner(repair, THREADS, sieve=Sieve(text, part))
    blocks = Blocks(text, rest, block_bytes)
    ahead: deque[tuple[Block, Callable[[], Early]]] = deque()
    with Beside(THREADS) as beside:
        for block in blocks:
            ahead.append((block, beside.begin(team.scan, block, joiner.limit)))
            if len(ahead) > BLOCKS_AHEAD:
                _join(joiner, ahead, blocks)
                refuse_emptiness(text, joiner.scanned)
            if joiner.scanned.ended:
                break
        while ahead and not joiner.scanned.ended:
            _join(joiner, ahead, blocks)
    return joiner.finish([block for block, _ in ahead], (*team.scanners, repair))


def _join(joiner: Joiner, ahead: deque[tuple[Block, Callable[[], Early]]], blocks: Blocks) -> None:
    block, early = ahead.popleft()
    if joiner.add(block, early()):
        blocks.give_back(block)


# ------------------------------------------------------------------------------------------------
# Which scanner reads a file, and which code finds the nesting of its rows.


compiled_scanner: Any = None
compiled_nesting: Any = None
try:
    compiled_scanner = import_module("pinchpoint.importers.kineto.native._scan")
    compiled_nesting = import_module("pinchpoint.importers.kineto.native._nest")

except ImportError:  # installed without a compiler
    pass

ScannerName = Literal["native", "plain"]
"""``native`` is compiled; ``plain`` gives the same tables, several times more slowly."""

# Large enough that work by block costs nothing; for the plain scanner small, since text that is
# not strict JSON makes it read the whole block slowly.
BLOCK_BYTES: dict[ScannerName, int] = {"native": 2 << 20, "plain": 256 << 10}


def available() -> ScannerName:
    """The fastest scanner of this installation."""
    return "plain" if compiled_nesting is None else "native"


def make_scanner(scanner: ScannerName, wanted: Iterable[int] = ()) -> Scanner:
    """A scanner that also keeps the text of the wanted events."""
    if scanner == "native":
        made: Scanner = compiled_scanner.NativeScanner(wanted)
        return made
    return PlainScanner(wanted)


def scan_events(
    text: Text,
    rest: bytes,
    scanner: ScannerName,
    block_bytes: int | None = None,
    *,
    keeps_arguments: bool | None = None,
    part: Part | None = None,
) -> Scanned:
    """Scan the events of a file, with the arguments of host events if it begins as XLA's do.

    Of a large file, only what lies in the part and near it.
    """
    block_bytes = block_bytes or BLOCK_BYTES[scanner]
    keeps = NAME_OF_XLA in rest if keeps_arguments is None else keeps_arguments
    if scanner == "native":
        if compiled_nesting is None:
            raise UsageError("this installation has no compiled scanner", hint="use 'plain'")
        scanned = scan_in_parallel(text, rest, block_bytes, part, keeps_arguments=keeps)
    else:
        plain = PlainScanner(keeps_arguments=keeps)
        scanned = scan_in_order(plain, text, rest, block_bytes, part)
    scanned.keeps_arguments = keeps
    return scanned


NAME_OF_XLA = b'"/host:CPU"'  # of the process that XLA's profiles name first, or after its devices


def scan_again(text: Text, scanner: ScannerName) -> Scanned:
    """Scan a file once more, this time with the arguments of host events."""
    with Text(text.path) as again:
        rest = open_events(again, DocumentFrame())
        return scan_events(again, rest, scanner, keeps_arguments=True)


def nest(
    rows: nesting.Rows, calls: nesting.Calls, threads: int, scanner: ScannerName
) -> nesting.Nesting:
    """See :func:`pinchpoint.importers.kineto.reading.nesting.nest`."""
    if scanner == "native":
        found: nesting.Nesting = compiled_nesting.nest(rows, calls, threads)
        return found
    return nesting.nest(rows, calls, threads)


# ------------------------------------------------------------------------------------------------
# The raw arguments of chosen events, read from the file when they are asked for.


def read_arguments(
    trace: Trace, events: Iterable[int], scanner: ScannerName | None = None
) -> list[dict[str, Any]]:
    """The ``args`` of events, by their position (``event`` column), in the order given.

    Reads the file again, as far as the last of the events. An event without arguments has an
    empty dictionary. Raises UnreadableFile if the file is gone.
    """
    asked = [int(event) for event in events]
    if not asked:
        return []
    found: dict[int, bytes] = {}
    scanner = scanner or available()
    with as_plain_file(Path(trace.source.path)) as path, Text(path) as text:
        joiner = Joiner(make_scanner(scanner, asked))
        blocks = Blocks(text, open_events(text, DocumentFrame()), BLOCK_BYTES[scanner])
        before, last = 0, max(asked)
        for block in blocks:
            more = joiner.add(block)
            for chunk, _ in joiner.scanned.chunks:
                found |= {before + event: raw for event, raw in chunk.raw}
                before += chunk.events
            joiner.scanned.chunks.clear()
            if not more or before > last:
                break
            blocks.give_back(block)
    texts = _argument_texts([found.get(event, b"{}") for event in asked])
    return [arguments_in(text) for text in texts]


class _Arguments(msgspec.Struct, gc=False):
    """What is asked of an event whose text is strict JSON."""

    args: msgspec.Raw = msgspec.Raw(b"{}")


_STRICT = msgspec.json.Decoder(list[_Arguments])


def _argument_texts(events: list[bytes]) -> list[bytes]:
    """The arguments of each event; strict JSON is read at once, if it is nothing else."""
    text = b",".join(events)
    if b"\\" not in text:  # keys are compared as they are written, msgspec compares them decoded
        with suppress(msgspec.MsgspecError, RecursionError, ValueError):
            found = [bytes(event.args) for event in _STRICT.decode(b"[" + text + b"]")]
            if all(one.startswith(b"{") for one in set(found)):  # else an earlier one may be one
                return found
    members = (event_at(event, 0, len(event))[0] for event in events)
    return [of.get(ARGUMENTS, b"{}") for of in members]


def arguments_in(text: bytes) -> dict[str, Any]:
    """Arguments as data; empty where their text is broken."""
    arguments = value_of(text)
    return arguments if isinstance(arguments, dict) else {}
