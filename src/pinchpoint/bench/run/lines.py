"""What looks at a few source lines found: ``inside.line_watch`` writes it beside the steps."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from pinchpoint.frozen import dataclass
from pinchpoint.replacing import read_bounded

Place = tuple[str, int]  # a file as it was asked for, and the number of its range


@dataclass(frozen=True)
class LinesSeen:
    """Of the steps of one run."""

    looks: int
    share: Mapping[Place, float]  # of the steps' time without waiting for a CPU, by range


class _Lines(msgspec.Struct):
    looks: int
    ns: int
    seen: list[tuple[str, int, int, int]]


class _Document(msgspec.Struct):
    lines: _Lines | None = None


def read_lines(folder: Path) -> LinesSeen | None:
    """Of the process that was looked at most; None where none was, or its record is damaged."""
    found = [lines for path in sorted(folder.glob("steps-*.json")) if (lines := _read(path))]
    most = max(found, key=lambda lines: lines.looks, default=None)
    if most is None or most.ns <= 0:
        return None
    return LinesSeen(most.looks, {(file, n): ns / most.ns for file, n, ns, _ in most.seen})


def _read(path: Path) -> _Lines | None:
    try:
        return msgspec.json.decode(read_bounded(path), type=_Document).lines
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
