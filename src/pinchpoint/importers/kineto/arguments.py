"""The raw arguments of chosen events, read from the file when they are asked for."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pinchpoint.importers.kineto.document import Blocks, Frame, open_events, value_of
from pinchpoint.importers.kineto.fields import ARGUMENTS
from pinchpoint.importers.kineto.lenient import event_at
from pinchpoint.importers.kineto.scan import Joiner
from pinchpoint.importers.kineto.scanner import BLOCK_BYTES, ScannerName, available, make_scanner
from pinchpoint.importers.kineto.text import Text
from pinchpoint.importers.open import as_plain_file
from pinchpoint.trace import Trace


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
        blocks = Blocks(text, open_events(text, Frame()), BLOCK_BYTES[scanner])
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
    return [_arguments(found.get(event)) for event in asked]


def _arguments(event: bytes | None) -> dict[str, Any]:
    if event is None:
        return {}
    members, _ = event_at(event, 0, len(event))
    arguments = value_of(members.get(ARGUMENTS, b"{}"))
    return arguments if isinstance(arguments, dict) else {}
