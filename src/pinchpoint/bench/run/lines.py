"""What a few source lines took of each step: ``inside.line_watch`` writes it beside the steps."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.replacing import read_bounded

Place = tuple[str, int]  # a file as it was asked for, and the number of its range
FEWEST_STEPS = 10  # whose spread says little of how sure their mean is, with fewer


@dataclass(frozen=True)
class Share:
    """A part of a step: the mean over the steps of a run, and the standard error of it."""

    mean: float = 0.0
    error: float = 0.0


@dataclass(frozen=True)
class LinesSeen:
    """Of the steps of one run, without waiting for a CPU."""

    steps: int
    share: Mapping[Place, Share]


class _Lines(msgspec.Struct):
    steps: list[int]
    seen: list[tuple[str, int, list[int]]]


class _Document(msgspec.Struct):
    lines: _Lines | None = None


def read_lines(folder: Path) -> LinesSeen | None:
    """Of the process with the most steps; None where too few were timed, or the record of it is
    damaged."""
    found = [lines for path in sorted(folder.glob("steps-*.json")) if (lines := _read(path))]
    most = max(found, key=lambda lines: len(lines.steps), default=None)
    if most is None or len(most.steps) < FEWEST_STEPS:
        return None
    steps = np.maximum(np.array(most.steps, np.float64), 1.0)
    shares = {}
    for file, number, taken in most.seen:
        if len(taken) != len(steps):
            return None
        # The mean step is what the parts are of: a step that took ten times as long counts so.
        parts = np.array(taken, np.float64) / steps.mean()
        error = float((parts - parts.mean() * steps / steps.mean()).std(ddof=1))
        shares[file, number] = Share(float(parts.mean()), error / len(steps) ** 0.5)
    return LinesSeen(len(steps), shares)


def _read(path: Path) -> _Lines | None:
    try:
        return msgspec.json.decode(read_bounded(path), type=_Document).lines
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
