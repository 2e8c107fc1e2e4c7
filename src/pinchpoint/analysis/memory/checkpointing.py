"""What activation checkpointing would save: lives of activations edited, the curve added up anew.

Checkpointing a layer keeps its input and makes its other activations again just before its
backward pass. So an activation of a layer lives until the layer's forward pass ends, is gone while
other layers run, and comes back for the layer's own backward pass. The recorded pass shows when
each of these happens. Cost: about one more forward pass of the layers that are checkpointed.
"""

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.memory.allocator.lives import Lives
from pinchpoint.analysis.memory.history import History, once_per_history
from pinchpoint.analysis.memory.owners.owners import MemoryCategory
from pinchpoint.analysis.memory.owners.phases import Phase, Run
from pinchpoint.analysis.memory.owners.stacks import Sign, is_python
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Frame
from pinchpoint.trace.arrays import Ints, Mask

# ------------------------------------------------------------------------------------------------
# The repeated layers of a model, found in the order of its allocations.
#
# A line of the program (or of a container) that calls layer after layer is the outermost frame
# below which the same sequence of stacks comes three times or more in one forward pass. The file
# has no module names: a layer is known by that line and its number.


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
    activations = history.owners.category[rows] == MemoryCategory.ACTIVATION
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


# ------------------------------------------------------------------------------------------------
# What activation checkpointing would save: lives of activations edited, the curve added up anew.


MOST_PASSES = 200  # that differ, and may each be the peak


@dataclass(frozen=True)
class LayerBytes:
    """Activations of one layer, kept for the backward pass."""

    number: int
    kept_bytes: int


@dataclass(frozen=True)
class Checkpointing:
    """``peak_bytes`` is the requested peak with every layer checkpointed, ``saved_bytes`` what
    that is less than the recorded one."""

    line: Frame
    layers: tuple[LayerBytes, ...]
    share_of_activations: float
    peak_bytes: int
    saved_bytes: int


@once_per_history
def checkpointing(history: History) -> Checkpointing | None:
    """The effect on the recorded peak; None if no repeated layers were found."""
    window = forward_before(history, history.peak_event)
    found = layers(history, window) if window else None
    if window is None or found is None:
        return None
    kept = (found.of_block >= 0) & history.owners.is_(MemoryCategory.ACTIVATION)
    sizes = history.blocks.requested
    per_layer = tuple(
        LayerBytes(
            number,
            int(sizes[kept & (found.of_block == number)].sum()),
        )
        for number in range(found.count)
    )
    mine = (history.blocks.birth >= window[0]) & (history.blocks.birth < window[1])
    total = int(sizes[mine & history.owners.is_(MemoryCategory.ACTIVATION)].sum())
    peak = history.replay.peak("requested").bytes
    with_it = _edited_peak(history, found)
    return Checkpointing(
        line=found.line,
        layers=per_layer,
        share_of_activations=sum(one.kept_bytes for one in per_layer) / max(total, 1),
        peak_bytes=with_it,
        saved_bytes=peak - with_it,
    )


def _outputs(found: Layers, kept: Mask) -> Mask:
    """The last activation that each layer makes: the input of the next one, which stays."""
    out = np.zeros(len(kept), np.bool_)
    rows = np.flatnonzero(kept)
    number = found.of_block[rows]
    last = np.append(number[1:] != number[:-1], True)
    out[rows[last]] = True
    return out


def _edited_peak(history: History, like: Layers) -> int:
    """The peak of the whole recording if every pass through these layers were checkpointed.

    Passes are taken from the highest down, until no later one can be the peak; one that allocates
    the same as an earlier one saves the same.
    """
    passes = forward_passes(history)
    starts = np.array([0, *(first for first, _ in passes)])
    curve = history.replay.requested
    raw = np.maximum.reduceat(curve, starts[starts < len(curve)])
    raw[0] = max(raw[0], history.replay.base[0])
    best, known = int(raw[0]), dict[tuple[int, bytes], int]()
    for at in np.argsort(-raw[1:], kind="stable").tolist():
        if raw[at + 1] <= best:
            break
        if len(known) >= MOST_PASSES:
            return int(raw[at + 1])  # no saving is claimed for passes that were not looked at
        first, end = passes[at]
        until = int(starts[at + 2]) if at + 2 < len(starts) else len(curve)
        key = (int(raw[at + 1]), _signature(history, first, end))
        if key not in known:
            known[key] = _edited_pass(history, (first, end), until, like)
        best = max(best, known[key])
    return best


def _signature(history: History, first: int, end: int) -> bytes:
    events = history.replay.events
    return bytes(events["bytes"][first:end]) + bytes(events["action"][first:end])


def _edited_pass(history: History, window: tuple[int, int], until: int, like: Layers) -> int:
    first = window[0]
    change = np.zeros(until - first + 2, np.int64)
    found = layers(history, window)
    if found is not None and found.line == like.line:
        kept = (found.of_block >= 0) & history.owners.is_(MemoryCategory.ACTIVATION)
        dropped = kept & ~_outputs(found, kept)
        for rows, gone, again in _gaps(history, found, dropped):
            total = int(history.blocks.requested[rows].sum())
            change[gone - first + 1] -= total
            change[min(again, until) - first + 1] += total
    curve = history.replay.requested[first:until]
    return int((curve + np.cumsum(change)[: len(curve)]).max(initial=0))


def _gaps(history: History, found: Layers, dropped: Mask) -> list[tuple[Ints, int, int]]:
    """For each layer: its dropped blocks, the event at which they go, and that at which they come
    back, which is when the layer behind it is done."""
    blocks = history.blocks
    backward = backward_after(history, found.first[-1])
    ends = [*found.first[1:], found.end]
    again = len(history.replay)
    if backward is not None:
        later = (blocks.birth >= found.end) & (blocks.birth < backward.first)
        later &= history.owners.is_(MemoryCategory.ACTIVATION) & (blocks.death < backward.end)
        again = int(blocks.death[later].max(initial=backward.first))
    out = []
    for number in reversed(range(found.count)):
        rows = np.flatnonzero(dropped & (found.of_block == number))
        if not len(rows):
            continue
        begin = min(again, int(blocks.death[rows].min()))
        if begin > ends[number]:
            out.append((rows, ends[number], begin))
        if backward is not None:
            again = int(blocks.death[rows].max())
    return out
