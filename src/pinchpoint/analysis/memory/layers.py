"""The repeated layers of a model, found in the order of its allocations.

A line of the program (or of a container) that calls layer after layer is the outermost frame
below which the same sequence of stacks comes three times or more in one forward pass. The file
has no module names: a layer is known by that line and its number.
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.memory.history import History
from pinchpoint.analysis.memory.lives import Lives
from pinchpoint.analysis.memory.owners import Category
from pinchpoint.analysis.memory.phases import Phase, Run
from pinchpoint.analysis.memory.stacks import Sign, is_python
from pinchpoint.trace import Frame
from pinchpoint.trace.arrays import Ints

MIN_LAYERS = 3  # what repeats less often is no stack of layers
MAJOR_RATIO = 0.5  # of the activations: less is not where the model spends its memory


@dataclass(frozen=True, eq=False)
class Layers:
    """One repeated group in one forward pass: ``line`` calls the layers; ``of_block`` has the
    layer of each block of Lives, -1 outside; ``first`` is the event at which each one begins."""

    line: Frame
    count: int
    of_block: Ints
    first: tuple[int, ...]
    end: int


def forward_passes(history: History) -> list[tuple[int, int]]:
    """The forward passes as ranges of events: runs of that phase, cut where a step begins or
    ends."""
    cuts = sorted({*history.steps.first, *history.steps.end})
    out = []
    for run in history.phases.of(Phase.FORWARD):
        inside = [c for c in cuts[bisect_right(cuts, run.first) :] if c < run.end]
        out += list(zip((run.first, *inside), (*inside, run.end), strict=True))
    return out


def forward_before(history: History, event: int) -> tuple[int, int] | None:
    """The forward pass whose activations an event sees: the last one that began before it."""
    before = [p for p in forward_passes(history) if p[0] <= event]
    return before[-1] if before else None


def backward_after(history: History, event: int) -> Run | None:
    """The first backward pass that begins at or after an event."""
    return next((r for r in history.phases.of(Phase.BACKWARD) if r.first >= event), None)


def layers(history: History, window: tuple[int, int]) -> Layers | None:
    """The layers of the forward pass in a window of events; None if nothing repeats."""
    blocks = history.blocks
    rows = blocks.born_within(*window)
    rows = rows[blocks.has_stack[rows]]
    rows = rows[history.signs.has(Sign.MODULE_CALL)[blocks.stack[rows]]]
    activations = history.owners.category[rows] == Category.ACTIVATION
    kept = np.where(activations, blocks.requested[rows], 0)
    total = int(kept.sum())
    paths = {s: _path(history, s) for s in np.unique(blocks.stack[rows]).tolist()}
    depth = 0
    while total and len(rows):
        frames = [paths[s][depth] if depth < len(paths[s]) else None for s in blocks.stack[rows]]
        line, weight = _heaviest(frames, kept)
        if line is None or weight < MAJOR_RATIO * total:
            return None
        inside = np.array([f == line for f in frames])
        rows, kept = rows[inside], kept[inside]
        starts = _repeats(blocks.stack[rows]) if _inside_module(paths, rows, blocks, depth) else []
        if len(starts) >= MIN_LAYERS:
            return _layers(history, line, rows, starts, window[1])
        depth += 1
    return None


def _inside_module(
    paths: dict[int, tuple[Frame, ...]], rows: Ints, blocks: Lives, depth: int
) -> bool:
    """Whether a module encloses the frame: what repeats outside of the model are passes."""
    path = paths[int(blocks.stack[rows[0]])]
    return any(frame.function == "_call_impl" for frame in path[:depth])


def _path(history: History, stack: int) -> tuple[Frame, ...]:
    """The Python frames of a stack, outermost first."""
    return tuple(f for f in reversed(history.signs.stacks[stack]) if is_python(f))


def _heaviest(frames: list[Frame | None], weight: Ints) -> tuple[Frame | None, int]:
    total: dict[Frame | None, int] = {}
    for frame, size in zip(frames, weight.tolist(), strict=True):
        total[frame] = total.get(frame, 0) + size
    total.pop(None, None)
    best = max(total, key=lambda f: total[f], default=None)
    return best, total.get(best, 0)


def _repeats(stack: NDArray[np.int32]) -> list[int]:
    """Where the first stack comes again after others: the beginnings of the layers.

    A first layer may do a little more than the others (it fills caches), so the sequence is cut at
    the first stack and need not be equal throughout.
    """
    again = stack == stack[0]
    if again.all():
        return list(range(len(stack)))
    starts = again & np.append(True, ~again[:-1])
    return [int(i) for i in np.flatnonzero(starts)]


def _layers(history: History, line: Frame, rows: Ints, starts: list[int], end: int) -> Layers:
    of_block = np.full(len(history.blocks), -1, np.int64)
    number = np.zeros(len(rows), np.int64)
    number[starts] = 1
    of_block[rows] = np.cumsum(number) - 1
    first = tuple(int(history.blocks.birth[rows[i]]) for i in starts)
    last = int(history.blocks.birth[rows[-1]])
    return Layers(line, len(starts), of_block, first, min(last + 1, end))
