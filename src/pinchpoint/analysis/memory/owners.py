"""What each block is: parameter, gradient, optimizer state, activation, …

The order of the questions matters: first what a stack proves, then what a life proves (born in
the backward pass and outliving it), then what equal sizes prove (a gradient is as large as its
parameter). What nothing proves stays *unknown*: categories never have to add up to everything.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from pinchpoint.analysis.memory.block_view import block_view
from pinchpoint.analysis.memory.owners_lasting import (
    WORKSPACE_BYTES,
    copies_of,
    gradients,
    kept_scratch,
    most_at_once,
    optimizer_state,
    parameters,
    static,
)
from pinchpoint.analysis.memory.owners_passing import (
    activations,
    inputs,
    temporaries,
    unfinished,
)
from pinchpoint.analysis.memory.phases import Phase, Phases
from pinchpoint.analysis.memory.replay import Replay
from pinchpoint.analysis.memory.stacks import Sign, StackSigns
from pinchpoint.trace.arrays import Codes, Ints, Mask


class Category(IntEnum):
    """What a block is used for."""

    PARAMETER = 1
    BUFFER = 2
    GRADIENT = 3
    OPTIMIZER_STATE = 4
    ACTIVATION = 5
    INPUT = 6
    TEMPORARY = 7
    WORKSPACE = 8
    UNKNOWN = 9


class Confidence(IntEnum):
    """What a category rests on."""

    LOW = 1  # nothing speaks against it
    MEDIUM = 2  # the block's life, or equal sizes
    HIGH = 3  # the stack that allocated it


@dataclass(frozen=True, eq=False)
class Owners:
    """Category and confidence of each block of the replay; ``recomputed`` marks activations that
    checkpointing made again in the backward pass."""

    category: Codes
    confidence: Codes
    recomputed: Mask

    def is_(self, *categories: Category) -> Mask:
        """Blocks of any of the categories."""
        return np.isin(self.category, categories)


def owners(replay: Replay, found: Phases, signs: StackSigns) -> Owners:
    """Categories of all blocks of a device."""
    view = block_view(replay, found, signs)
    count = len(replay.blocks)
    category = np.full(count, Category.UNKNOWN, np.uint8)
    confidence = np.full(count, Confidence.LOW, np.uint8)

    def set_(rows: Mask | Ints, what: Category, how: Confidence) -> None:
        category[rows] = what
        confidence[rows] = how

    set_(temporaries(view), Category.TEMPORARY, Confidence.MEDIUM)
    recomputed = (view.born == Phase.BACKWARD) & view.has(Sign.CHECKPOINT)
    set_(recomputed, Category.ACTIVATION, Confidence.HIGH)
    set_(inputs(view), Category.INPUT, Confidence.MEDIUM)
    set_(activations(view), Category.ACTIVATION, Confidence.MEDIUM)
    state, certain = optimizer_state(view)
    set_(state, Category.OPTIMIZER_STATE, Confidence.MEDIUM)
    set_(certain, Category.OPTIMIZER_STATE, Confidence.HIGH)
    scratch = kept_scratch(view)
    set_(scratch, Category.WORKSPACE, Confidence.MEDIUM)
    set_(view.has(Sign.WORKSPACE), Category.WORKSPACE, Confidence.HIGH)
    taken = state | certain | scratch | view.has(Sign.WORKSPACE)
    early = static(view) & ~taken
    made = gradients(view, early) & ~taken
    set_(made, Category.GRADIENT, Confidence.MEDIUM)
    needed = most_at_once(view, made)
    weights, buffers = parameters(view, early & ~made, needed, signs)
    moved = view.has(Sign.MOVE)
    set_(weights, Category.PARAMETER, Confidence.MEDIUM)
    set_(weights & moved, Category.PARAMETER, Confidence.HIGH)
    set_(buffers, Category.BUFFER, Confidence.HIGH)
    rest = early & ~made & ~weights & ~buffers & view.blocks.before
    copies = copies_of(view, rest, needed)
    set_(copies, Category.OPTIMIZER_STATE, Confidence.MEDIUM)
    rest[copies] = False
    like, known = unfinished(view)
    category[like], confidence[like] = category[known], Confidence.MEDIUM
    scratch_size = view.stays & np.isin(view.blocks.requested, WORKSPACE_BYTES)
    old = (rest & ~view.blocks.has_stack) | (view.born == Phase.BACKWARD)
    unclaimed = scratch_size & old & (category == Category.UNKNOWN)
    set_(unclaimed, Category.WORKSPACE, Confidence.LOW)
    return Owners(category, confidence, recomputed)
