"""When a step of a large file ran, by its markers alone: a search of the text, not a scan of it."""

from decimal import Decimal
from pathlib import Path

from pinchpoint.importers.kineto.reading.text import Text
from pinchpoint.regex import regex
from pinchpoint.trace.window import Part

# Large enough that the calls for each block cost nothing beside the search, 100 µs of 10 ms.
_BLOCK_BYTES = 8 << 20
# An event with its arguments; a marker has few. What two blocks share, so that none is cut in two.
_EVENT_BYTES = 2048
_TIME = regex(rb'"ts"\s*:\s*"?(\d{1,16}(?:\.\d{1,9})?)')
_LENGTH = regex(rb'"dur"\s*:\s*"?(\d{1,16}(?:\.\d{1,9})?)')


def part_of_step(path: Path, number: int) -> Part | None:
    """The time from the first to the last end of a step's markers, on all threads and devices.

    None where there is none, or one does not say when it was.
    """
    mark = b'"ProfilerStep#%d"' % number
    spans: list[tuple[int, int]] = []
    with Text(path) as text:
        before, block = b"", b"-"
        while block:
            block = text.read(_BLOCK_BYTES)
            held = before + block
            # what ends within the last bytes is found again with what follows it
            until = len(held) - (_EVENT_BYTES if block else 0)
            at = held.find(mark, min(len(before), _EVENT_BYTES // 2))
            while 0 <= at < until:
                span = _span(held, at)
                if span is None:
                    return None
                spans.append(span)
                at = held.find(mark, at + 1)
            before = held[max(0, until - _EVENT_BYTES // 2) :]
    if not spans:
        return None
    first = min(start for start, _ in spans)
    return Part(0, max(end for _, end in spans) - first, since_ns=first)


def _span(text: bytes, at: int) -> tuple[int, int] | None:
    """Start and end of the event whose name stands there, in nanoseconds of the file's clock."""
    event = text[max(0, at - _EVENT_BYTES // 2) : at].rpartition(b"{")[2]
    event += text[at : at + _EVENT_BYTES].partition(b"{")[0]  # up to its arguments, or the next
    start, length = _TIME.search(event), _LENGTH.search(event)
    if start is None or length is None:
        return None
    begin = int(Decimal(start[1].decode()) * 1000)
    return begin, begin + int(Decimal(length[1].decode()) * 1000)
