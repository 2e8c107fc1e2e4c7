"""What each block is: parameter, gradient, optimizer state, activation, …

The order of the questions matters: first what a stack proves, then what a life proves (born in
the backward pass and outliving it), then what equal sizes prove (a gradient is as large as its
parameter). What nothing proves stays *unknown*: categories never have to add up to everything.
"""

from collections.abc import Iterator
from enum import IntEnum

import numpy as np

from pinchpoint.analysis.memory.allocator.replay import AllocatorReplay
from pinchpoint.analysis.memory.owners.lasting import (
    LT_WORKSPACE_BYTES,
    WORKSPACE_BYTES,
    BlockView,
    block_view,
    copies_of,
    gradients,
    kept_scratch,
    most_at_once,
    optimizer_state,
    parameters,
    static,
)
from pinchpoint.analysis.memory.owners.phases import Phase, Phases, Run
from pinchpoint.analysis.memory.owners.stacks import Sign, StackSigns
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Codes, Ints, Mask
from pinchpoint.trace.snapshot import CATEGORY_FILE

# ------------------------------------------------------------------------------------------------
# Blocks that come and go with a pass: temporaries, inputs, activations.


SAME_ORDER_RATIO = 0.9  # of the allocations of two passes of one model


def temporaries(view: BlockView) -> Mask:
    """Gone before the pass that made them is over."""
    short = (view.blocks.death < view.run_end) & ~view.blocks.before
    known = view.born != Phase.UNKNOWN
    gone = short | ((view.born == Phase.SETUP) & ~view.stays)
    result: Mask = gone & known
    return result


def inputs(view: BlockView) -> Mask:
    """Allocated between two passes, still there when the next one begins, gone thereafter."""
    starts = np.array([r.first for r in view.forward], np.int64)
    if not len(starts):
        return np.zeros(len(view.blocks), np.bool_)
    at = np.searchsorted(starts, view.blocks.birth, "right")
    following = np.append(starts, view.end + 1)[at]
    held = view.stays & (at + 1 < len(starts))  # other passes came and went
    result: Mask = (view.born == Phase.OUTSIDE) & (view.blocks.death > following) & ~held
    return result


def activations(view: BlockView) -> Mask:
    """Made by a forward pass and still there after it: kept for the backward pass, or a result.

    Without a backward pass the graph goes when its result does, which the program does outside of
    any module; what no graph holds goes inside the module that made it.
    """
    outlives = view.blocks.death >= view.run_end
    released = view.has(Sign.MODULE_CALL) & view.freed_outside_module & ~view.then_backward
    made = view.born == Phase.FORWARD
    held_before = view.blocks.before & view.has(Sign.MODULE_CALL)
    dropped = view.blocks.before & ~view.blocks.has_stack & (view.died == Phase.BACKWARD)
    result: Mask = (made & (outlives | released)) | held_before | dropped
    return result


def unfinished(view: BlockView) -> tuple[Ints, Ints]:
    """Blocks of a pass that the end of the recording cuts off, and for each the block at the same
    place of the last whole pass that allocates in the same order."""
    none = np.zeros(0, np.int64)
    if not view.runs or view.runs[-1].phase not in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
        return none, none
    last = view.runs[-1]
    mine = _born_in(view, last)
    for run in reversed([r for r in view.runs[:-1] if r.phase == last.phase]):
        other = _born_in(view, run)
        other = other[~_made_once(view, other)][: len(mine)]
        if len(other) == len(mine) and _same_order(view, mine, other):
            return mine, other
    return none, none


def _made_once(view: BlockView, rows: Ints) -> Mask:
    """Scratch that only the first pass makes."""
    sizes = (*WORKSPACE_BYTES, LT_WORKSPACE_BYTES)
    result: Mask = view.stays[rows] & np.isin(view.blocks.requested[rows], sizes)
    return result


def _born_in(view: BlockView, run: Run) -> Ints:
    return view.blocks.born_within(run.first, run.end)


def _same_order(view: BlockView, one: Ints, other: Ints) -> bool:
    """Whether two passes allocate alike: by their stacks, or where those say nothing by size."""
    blocks = view.blocks
    speaking = (view.sign[one] & int(Sign.PYTHON)) != 0
    stack = blocks.stack[one] == blocks.stack[other]
    size = blocks.requested[one] == blocks.requested[other]
    return bool(len(one)) and float(np.where(speaking, stack, size).mean()) >= SAME_ORDER_RATIO


class MemoryCategory(IntEnum):
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


# ------------------------------------------------------------------------------------------------
# What each block is: parameter, gradient, optimizer state, activation, …


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

    def is_(self, *categories: MemoryCategory) -> Mask:
        """Blocks of any of the categories."""
        return np.isin(self.category, categories)


def owners(replay: AllocatorReplay, found: Phases, signs: StackSigns) -> Owners:
    """Categories of all blocks of a device."""
    view = block_view(replay, found, signs)
    count = len(replay.blocks)
    category = np.full(count, MemoryCategory.UNKNOWN, np.uint8)
    confidence = np.full(count, Confidence.LOW, np.uint8)

    def set_(rows: Mask | Ints, what: MemoryCategory, how: Confidence) -> None:
        category[rows] = what
        confidence[rows] = how

    set_(temporaries(view), MemoryCategory.TEMPORARY, Confidence.MEDIUM)
    recomputed = (view.born == Phase.BACKWARD) & view.has(Sign.CHECKPOINT)
    set_(recomputed, MemoryCategory.ACTIVATION, Confidence.HIGH)
    set_(inputs(view), MemoryCategory.INPUT, Confidence.MEDIUM)
    set_(activations(view), MemoryCategory.ACTIVATION, Confidence.MEDIUM)
    state, certain = optimizer_state(view)
    set_(state, MemoryCategory.OPTIMIZER_STATE, Confidence.MEDIUM)
    set_(certain, MemoryCategory.OPTIMIZER_STATE, Confidence.HIGH)
    scratch = kept_scratch(view)
    set_(scratch, MemoryCategory.WORKSPACE, Confidence.MEDIUM)
    set_(view.has(Sign.WORKSPACE), MemoryCategory.WORKSPACE, Confidence.HIGH)
    taken = state | certain | scratch | view.has(Sign.WORKSPACE)
    early = static(view) & ~taken
    made = gradients(view, early) & ~taken
    set_(made, MemoryCategory.GRADIENT, Confidence.MEDIUM)
    needed = most_at_once(view, made)
    weights, buffers = parameters(view, early & ~made, needed, signs)
    moved = view.has(Sign.MOVE)
    set_(weights, MemoryCategory.PARAMETER, Confidence.MEDIUM)
    set_(weights & moved, MemoryCategory.PARAMETER, Confidence.HIGH)
    set_(buffers, MemoryCategory.BUFFER, Confidence.HIGH)
    rest = early & ~made & ~weights & ~buffers & view.blocks.before
    copies = copies_of(view, rest, needed)
    set_(copies, MemoryCategory.OPTIMIZER_STATE, Confidence.MEDIUM)
    rest[copies] = False
    like, known = unfinished(view)
    category[like], confidence[like] = category[known], Confidence.MEDIUM
    scratch_size = view.stays & np.isin(view.blocks.requested, WORKSPACE_BYTES)
    old = (rest & ~view.blocks.has_stack) | (view.born == Phase.BACKWARD)
    unclaimed = scratch_size & old & (category == MemoryCategory.UNKNOWN)
    set_(unclaimed, MemoryCategory.WORKSPACE, Confidence.LOW)
    for what, rows in _told(view, signs):
        set_(rows, what, Confidence.HIGH)
    return Owners(category, confidence, recomputed)


# As PyTorch's profiler calls them; the rest is what it calls unknown.
_AS_RECORDED = {
    "parameter": MemoryCategory.PARAMETER,
    "optimizer state": MemoryCategory.OPTIMIZER_STATE,
    "input": MemoryCategory.INPUT,
    "temporary": MemoryCategory.TEMPORARY,
    "activation": MemoryCategory.ACTIVATION,
    "gradient": MemoryCategory.GRADIENT,
    "autograd detail": MemoryCategory.TEMPORARY,
}


def _told(view: BlockView, signs: StackSigns) -> Iterator[tuple[MemoryCategory, Mask]]:
    """Blocks of which the recorder itself says what they are."""
    if not any(frame.file == CATEGORY_FILE for frame in signs.stacks.frames):
        return
    stack = np.where(view.blocks.has_stack, view.blocks.stack, -1)
    for position in range(len(signs.stacks)):
        frame = signs.stacks[position][0]
        if frame.file == CATEGORY_FILE:
            yield _AS_RECORDED.get(frame.function, MemoryCategory.UNKNOWN), stack == position
