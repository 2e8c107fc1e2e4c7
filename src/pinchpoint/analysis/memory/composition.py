"""Who holds the memory at one moment."""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.memory.history import History
from pinchpoint.analysis.memory.owners import Category, Confidence
from pinchpoint.analysis.memory.phases import Phase
from pinchpoint.trace import Frame


@dataclass(frozen=True)
class Holder:
    """Blocks of one category that one stack allocated."""

    category: Category
    confidence: Confidence
    bytes: int
    blocks: int
    largest_bytes: int
    place: Frame | None
    operation: str | None
    phase: Phase
    stack: int | None


def holders(history: History, event: int) -> tuple[Holder, ...]:
    """The live blocks right after an event by category and stack, largest first."""
    blocks = history.blocks
    rows = np.flatnonzero(blocks.alive(event))
    if not len(rows):
        return ()
    stack = np.where(blocks.has_stack[rows], blocks.stack[rows], -1)
    born = np.append(history.phases.of_event, Phase.UNKNOWN)[blocks.birth[rows]]
    born = np.where(blocks.before[rows], Phase.UNKNOWN, born)
    key = np.stack((history.owners.category[rows], stack, born), axis=1)
    kinds, inverse = np.unique(key, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    total = np.bincount(inverse, blocks.requested[rows]).astype(np.int64)
    count = np.bincount(inverse)
    largest = np.zeros(len(kinds), np.int64)
    np.maximum.at(largest, inverse, blocks.requested[rows])
    sure = np.full(len(kinds), Confidence.HIGH, np.int64)
    np.minimum.at(sure, inverse, history.owners.confidence[rows].astype(np.int64))
    out = []
    for i in np.argsort(-total, kind="stable").tolist():
        which, one, phase = (int(v) for v in kinds[i])
        out.append(
            Holder(
                category=Category(which),
                confidence=Confidence(int(sure[i])),
                bytes=int(total[i]),
                blocks=int(count[i]),
                largest_bytes=int(largest[i]),
                place=history.signs.location(one) if one >= 0 else None,
                operation=history.signs.operation(one) if one >= 0 else None,
                phase=Phase(phase),
                stack=one if one >= 0 else None,
            )
        )
    return tuple(out)
