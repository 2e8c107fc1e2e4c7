"""Shows each line of a log to one reader after the other: what one leaves of it, to the next.

A line like an earlier one, which no reader before the last took, goes to the last at once: of logs
that is nearly every line, and the others look for a hundred expressions in it.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from pinchpoint.importers.program_logs.any_figures import AnyFigures
from pinchpoint.importers.program_logs.failures import Failures
from pinchpoint.importers.program_logs.text_tables import TextTables
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

_COLOURS = regex(r"\x1b\[[0-9;]*[A-Za-z]")
_LONGEST_LINE = 4096  # what is looked for is said earlier; longer lines list arguments
# Lines of which a reader keeps something though it leaves them to the others: headings, and words.
_HEADS = "#=-|>"
_KEPT = ("NCCL", "nvbandwidth", "loop_count", "_perf", "-----", "trtexec", "TensorRT", "ggml_",
         "  Device ", ":::MLLOG", "|", "=== Performance summary ===")  # fmt: skip


class Reader(Protocol):
    """Takes lines, and may be within a block, so that the next line can be of it."""

    def line(self, text: str) -> str:
        """What is left of a line for other readers."""
        ...

    def tables(self) -> tuple[SummaryTable, ...]:
        """What was read."""
        ...

    def is_open(self) -> bool:
        """Whether the next line may be of a block that has begun."""
        ...


def look(
    part: Iterable[str],
    failures: Failures,
    readers: Sequence[Reader],
    of_text: TextTables,
    any_figures: AnyFigures,
) -> None:
    """All lines of a part of a log."""
    readers = (*readers, of_text)
    closed = not any(reader.is_open() for reader in readers)
    for line in part:
        text = line[:_LONGEST_LINE]
        if "\x1b" in text:
            text = _COLOURS.sub("", text)
        if not text:
            continue  # no reader is shown one
        if closed and any_figures.again(text):
            of_text.passed(text)
            continue
        rest, was_closed = failures.line(text), closed
        for reader in readers:
            if not rest:
                break
            rest = reader.line(rest)
        any_figures.line(rest)
        closed = not any(reader.is_open() for reader in readers)
        known = closed and was_closed and bool(rest) and rest == text
        if known and any_figures.has_room() and not _of_state(text, failures):
            any_figures.remember(text)


def _of_state(text: str, failures: Failures) -> bool:
    """Whether a reader may keep something of a line, or of one with other digits."""
    if text.lstrip()[:1] in _HEADS or any(words in text for words in _KEPT):
        return True
    return failures.concerns(text)


__all__ = ["Reader", "look"]
