"""What activation checkpointing would save: lives of activations edited, the curve added up anew.

Checkpointing a layer keeps its input and makes its other activations again just before its
backward pass. So an activation of a layer lives until the layer's forward pass ends, is gone while
other layers run, and comes back for the layer's own backward pass. The recorded pass shows when
each of these happens. Cost: about one more forward pass of the layers that are checkpointed.
"""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.memory.history import History, once_per_history
from pinchpoint.analysis.memory.layers import (
    Layers,
    backward_after,
    forward_before,
    forward_passes,
    layers,
)
from pinchpoint.analysis.memory.owners import Category
from pinchpoint.trace import Frame
from pinchpoint.trace.arrays import Ints, Mask

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
    kept = (found.of_block >= 0) & history.owners.is_(Category.ACTIVATION)
    sizes = history.blocks.requested
    per_layer = tuple(
        LayerBytes(
            number,
            int(sizes[kept & (found.of_block == number)].sum()),
        )
        for number in range(found.count)
    )
    mine = (history.blocks.birth >= window[0]) & (history.blocks.birth < window[1])
    total = int(sizes[mine & history.owners.is_(Category.ACTIVATION)].sum())
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
        kept = (found.of_block >= 0) & history.owners.is_(Category.ACTIVATION)
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
        later &= history.owners.is_(Category.ACTIVATION) & (blocks.death < backward.end)
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
