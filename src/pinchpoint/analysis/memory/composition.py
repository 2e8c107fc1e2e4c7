"""Who holds the memory at one moment."""

import numpy as np

from pinchpoint.analysis.memory.history import History
from pinchpoint.analysis.memory.owners.owners import Confidence, MemoryCategory
from pinchpoint.analysis.memory.owners.phases import Phase
from pinchpoint.analysis.memory.owners.stacks import Sign
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Frame

MADE_BEFORE_LOSS = 4  # blocks: the last product, its bias, a cast, a reshape


@dataclass(frozen=True)
class Holder:
    """Blocks of one category that one stack allocated."""

    category: MemoryCategory
    confidence: Confidence
    bytes: int
    blocks: int
    largest_bytes: int
    place: Frame | None
    operation: str | None
    phase: Phase
    stack: int | None


@dataclass(frozen=True)
class LossBlocks:
    """Live blocks as large as what the loss function allocates."""

    bytes: int
    blocks: int
    largest_bytes: int
    place: Frame | None


def largest_category(history: History, event: int) -> MemoryCategory:
    """The category that holds most right after an event."""
    held = history.bytes_of(event)
    return max(held, key=lambda category: held[category])


def loss_blocks(history: History, event: int) -> LossBlocks | None:
    """Logits and their like in the pass that an event belongs to: live blocks as large as the
    largest one that a loss function allocates (or half or twice that: another precision), made
    with it, just before it, or later in the pass."""
    blocks, signs = history.blocks, history.signs
    passes = [r.first for r in history.phases.of(Phase.FORWARD) if r.first <= event]
    begin = passes[-1] if passes else 0
    in_pass = (blocks.birth >= begin) & (blocks.birth <= event)
    of_loss = blocks.has_stack & np.append(signs.has(Sign.LOSS), False)[blocks.stack] & in_pass
    if not of_loss.any():
        return None
    largest = int(blocks.requested[of_loss].max())
    first = max(int(np.flatnonzero(of_loss)[0]) - MADE_BEFORE_LOSS, 0)
    mine = blocks.alive(event) & in_pass & (np.arange(len(blocks)) >= first)
    mine &= ~history.owners.is_(MemoryCategory.GRADIENT, MemoryCategory.WORKSPACE)
    mine &= np.isin(blocks.requested, (largest, largest // 2, largest * 2))
    if not mine.any():
        return None
    row = int(np.flatnonzero(of_loss & (blocks.requested == largest))[0])
    return LossBlocks(
        bytes=int(blocks.requested[mine].sum()),
        blocks=int(mine.sum()),
        largest_bytes=int(blocks.requested[mine].max()),
        place=signs.location(int(blocks.stack[row])),
    )


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
                category=MemoryCategory(which),
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
