"""Blocks that come and go with a pass: temporaries, inputs, activations."""

import numpy as np

from pinchpoint.analysis.memory.block_view import BlockView
from pinchpoint.analysis.memory.owners_lasting import LT_WORKSPACE_BYTES, WORKSPACE_BYTES
from pinchpoint.analysis.memory.phases import Phase, Run
from pinchpoint.analysis.memory.stacks import Sign
from pinchpoint.trace.arrays import Ints, Mask

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
