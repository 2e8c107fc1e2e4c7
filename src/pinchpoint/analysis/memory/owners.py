"""What each block is: parameter, gradient, optimizer state, activation, …

The order of the questions matters: first what a stack proves, then what a life proves (born in
the backward pass and outliving it), then what equal sizes prove (a gradient is as large as its
parameter). What nothing proves stays *unknown*: categories never have to add up to everything.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.memory.lives import Index, Lives, Mask
from pinchpoint.analysis.memory.phases import Phase, Phases, Run
from pinchpoint.analysis.memory.replay import Replay, curve
from pinchpoint.analysis.memory.stacks import Sign, StackSigns

# Scratch memory that cuBLAS keeps for each handle and stream: getChosenWorkspaceSize of
# aten/src/ATen/cuda/CublasHandlePool.cpp (32 MiB on Hopper, 8.125 MiB before) and cuBLASLt's 1 MiB.
WORKSPACE_BYTES = (33_554_432, 8_519_680)
LT_WORKSPACE_BYTES = 1_048_576
SCALAR_BYTES = 8  # step counters of optimizers


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

    category: NDArray[np.uint8]
    confidence: NDArray[np.uint8]
    recomputed: Mask

    def is_(self, *categories: Category) -> Mask:
        """Blocks of any of the categories."""
        return np.isin(self.category, categories)


@dataclass(frozen=True, eq=False)
class _View:
    """The facts about blocks that the questions below ask for."""

    blocks: Lives
    end: int
    sign: NDArray[np.int32]
    freed_outside_module: Mask
    zeroed: Mask  # let go by zero_grad
    born: NDArray[np.uint8]  # Phase at birth; UNKNOWN before the recording
    died: NDArray[np.uint8]  # Phase at death; UNKNOWN if it did not die
    run_end: Index  # end of the run of phases that it was born in
    then_backward: Mask  # that run is followed by a backward pass
    backward: tuple[Run, ...]
    forward: tuple[Run, ...]
    optimizer: tuple[Run, ...]

    def has(self, sign: Sign) -> Mask:
        result: Mask = (self.sign & int(sign)) != 0
        return result

    @property
    def stays(self) -> Mask:
        """Never freed while recording."""
        result: Mask = self.blocks.death == self.end
        return result


def owners(replay: Replay, found: Phases, signs: StackSigns) -> Owners:
    """Categories of all blocks of a device."""
    view = _view(replay, found, signs)
    count = len(replay.blocks)
    category = np.full(count, Category.UNKNOWN, np.uint8)
    confidence = np.full(count, Confidence.LOW, np.uint8)

    def set_(rows: Mask | Index, what: Category, how: Confidence) -> None:
        category[rows] = what
        confidence[rows] = how

    set_(*_temporaries(view))
    recomputed = (view.born == Phase.BACKWARD) & view.has(Sign.CHECKPOINT)
    set_(recomputed, Category.ACTIVATION, Confidence.HIGH)
    set_(_inputs(view), Category.INPUT, Confidence.MEDIUM)
    set_(*_activations(view))
    state, certain = _optimizer_state(view)
    set_(state, Category.OPTIMIZER_STATE, Confidence.MEDIUM)
    set_(certain, Category.OPTIMIZER_STATE, Confidence.HIGH)
    scratch = _kept_scratch(view)
    set_(scratch, Category.WORKSPACE, Confidence.MEDIUM)
    set_(view.has(Sign.WORKSPACE), Category.WORKSPACE, Confidence.HIGH)
    taken = state | certain | scratch | view.has(Sign.WORKSPACE)
    static = _static(view) & ~taken
    gradients = _gradients(view, static) & ~taken
    set_(gradients, Category.GRADIENT, Confidence.MEDIUM)
    needed = _most_at_once(view, gradients)
    parameters, buffers = _parameters(view, static & ~gradients, needed, signs)
    moved = view.has(Sign.MOVE)
    set_(parameters, Category.PARAMETER, Confidence.MEDIUM)
    set_(parameters & moved, Category.PARAMETER, Confidence.HIGH)
    set_(buffers, Category.BUFFER, Confidence.HIGH)
    rest = static & ~gradients & ~parameters & ~buffers & view.blocks.before
    set_(_copies_of(view, rest, needed), Category.OPTIMIZER_STATE, Confidence.MEDIUM)
    return Owners(category, confidence, recomputed)


def bytes_by_category(
    replay: Replay, found: Owners, event: int, weight: Index | None = None
) -> dict[Category, int]:
    """Bytes of the blocks that are alive right after an event, requested unless told otherwise."""
    alive = replay.blocks.alive(event)
    sizes = replay.blocks.requested if weight is None else weight
    total = np.bincount(found.category[alive], sizes[alive], minlength=len(Category) + 1)
    return {category: int(total[category]) for category in Category}


def _view(replay: Replay, found: Phases, signs: StackSigns) -> _View:
    blocks, end = replay.blocks, len(replay)
    sign = np.where(blocks.has_stack, np.append(signs.sign, 0)[blocks.stack], 0)
    freeing = np.append(signs.sign, 0)[blocks.freed_by]
    in_module = (freeing & int(Sign.MODULE_CALL)) != 0
    of_event = np.append(found.of_event, Phase.UNKNOWN)
    run_end, then_backward = np.zeros(end + 1, np.int64), np.zeros(end + 1, np.bool_)
    for run, following in zip(found.runs, (*found.runs[1:], None), strict=True):
        run_end[run.first : run.end] = run.end
        if following is not None and following.phase == Phase.BACKWARD:
            then_backward[run.first : run.end] = True
    return _View(
        blocks=blocks,
        end=end,
        sign=sign,
        freed_outside_module=blocks.has_freed_by & ~in_module,
        zeroed=blocks.has_freed_by & ((freeing & int(Sign.ZERO_GRAD)) != 0),
        born=np.where(blocks.before, Phase.UNKNOWN, of_event[blocks.birth]).astype(np.uint8),
        died=of_event[np.minimum(blocks.death, end)],
        run_end=run_end[blocks.birth],
        then_backward=then_backward[blocks.birth],
        backward=found.of(Phase.BACKWARD),
        forward=found.of(Phase.FORWARD),
        optimizer=found.of(Phase.OPTIMIZER),
    )


def _temporaries(view: _View) -> tuple[Mask, Category, Confidence]:
    """Gone before the pass that made them is over."""
    short = (view.blocks.death < view.run_end) & ~view.blocks.before
    known = view.born != Phase.UNKNOWN
    gone = short | ((view.born == Phase.SETUP) & ~view.stays)
    return gone & known, Category.TEMPORARY, Confidence.MEDIUM


def _inputs(view: _View) -> Mask:
    """Allocated between two passes, still there when the next one begins, gone thereafter."""
    starts = np.array([r.first for r in view.forward], np.int64)
    if not len(starts):
        return np.zeros(len(view.blocks), np.bool_)
    at = np.searchsorted(starts, view.blocks.birth, "right")
    following = np.append(starts, view.end + 1)[at]
    held = view.stays & (at + 1 < len(starts))  # other passes came and went
    result: Mask = (view.born == Phase.OUTSIDE) & (view.blocks.death > following) & ~held
    return result


def _activations(view: _View) -> tuple[Mask, Category, Confidence]:
    """Made by a forward pass and still there after it: kept for the backward pass, or a result.

    Without a backward pass the graph goes when its result does, which the program does outside of
    any module; what no graph holds goes inside the module that made it.
    """
    outlives = view.blocks.death >= view.run_end
    released = view.has(Sign.MODULE_CALL) & view.freed_outside_module & ~view.then_backward
    made = view.born == Phase.FORWARD
    held_before = view.blocks.before & view.has(Sign.MODULE_CALL)
    dropped = view.blocks.before & ~view.blocks.has_stack & (view.died == Phase.BACKWARD)
    return (
        (made & (outlives | released)) | held_before | dropped,
        Category.ACTIVATION,
        (Confidence.MEDIUM),
    )


def _optimizer_state(view: _View) -> tuple[Mask, Mask]:
    """Made in the optimizer's step and there for the next one; certain where the stack says so."""
    made = view.has(Sign.OPTIMIZER) & ~view.has(Sign.WORKSPACE)
    runs_end = np.array([r.end for r in view.optimizer], np.int64)
    starts = np.array([r.first for r in view.optimizer], np.int64)
    birth = np.maximum(view.blocks.birth, 0)
    at = np.searchsorted(runs_end, birth, "right") if len(runs_end) else np.zeros(len(birth), int)
    following = np.append(starts, view.end)[np.minimum(at + 1, len(starts))]
    over = np.append(runs_end, view.end)[np.minimum(at, len(runs_end))] < view.end
    outlives = (view.blocks.death >= view.run_end) & (
        (view.blocks.death > following) | (view.stays & over)
    )
    outlives |= view.blocks.before
    certain = made & view.has(Sign.STATE) & (view.stays | outlives)
    return made & outlives, certain


def _kept_scratch(view: _View) -> Mask:
    """Never freed, of a size that cuBLAS keeps, and made once although the line ran again; or made
    as the pair that a new handle asks for."""
    blocks = view.blocks
    during = np.isin(view.born, (Phase.FORWARD, Phase.BACKWARD))
    during |= (
        blocks.before
        & blocks.has_stack
        & (view.has(Sign.MODULE_CALL | Sign.ENGINE) | ~view.has(Sign.PYTHON))
    )
    kept = during & view.stays
    large = kept & np.isin(blocks.requested, WORKSPACE_BYTES)
    small = kept & (blocks.requested == LT_WORKSPACE_BYTES)
    if not (large | small).any():
        return large
    stack = np.where(blocks.has_stack, blocks.stack, -1)
    keys = np.stack((blocks.requested, stack, blocks.stream.astype(np.int64)), axis=1)[kept]
    _, kind, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    once = np.zeros(len(blocks), np.bool_)
    once[kept] = counts[kind.reshape(-1)] == 1
    settled = once & (blocks.death > view.run_end)
    following = np.append(stack[1:] == stack[:-1], False) & np.append(small[1:], False)
    first_of_pair = large & following & once
    second_of_pair = small & np.append(False, first_of_pair[:-1])
    result: Mask = ((large | small) & settled) | first_of_pair | second_of_pair
    return result


def _static(view: _View) -> Mask:
    """There before the first pass, and not a leftover of an earlier one."""
    early = view.blocks.before | (view.born == Phase.SETUP) | view.has(Sign.MOVE | Sign.BUILD)
    first = view.backward[0].end if view.backward else view.end - 1
    result: Mask = early & (view.blocks.death > first) & ~view.has(Sign.MODULE_CALL)
    return result


def _gradients(view: _View, static: Mask) -> Mask:
    """Let go by zero_grad; or made in a backward pass and outliving it, as many of each size as
    there are parameters."""
    outlives = view.blocks.death >= view.run_end
    made = (view.born == Phase.BACKWARD) & outlives & ~view.has(Sign.CHECKPOINT)
    zeroed = view.zeroed & ~view.has(Sign.PYTHON)
    known = static & (view.blocks.requested > 0)
    sizes, room = np.unique(view.blocks.requested[known], return_counts=True)
    rows = np.flatnonzero(made & ~zeroed)
    size = view.blocks.requested[rows]
    if not np.isin(size, sizes).any():  # parameters are not in the recording
        unmatched: Mask = (made & ~view.stays) | zeroed
        return unmatched
    at = np.minimum(np.searchsorted(sizes, size), len(sizes) - 1)
    capacity = np.where(sizes[at] == size, room[at], 0)
    fits = _concurrent(size, view.blocks.birth[rows], view.blocks.death[rows]) < capacity
    made[rows[~fits]] = False
    result: Mask = made | zeroed
    return result


def _concurrent(size: Index, birth: Index, death: Index) -> Index:
    """For each of these blocks, how many others of its size are alive when it is born."""
    out = np.zeros(len(size), np.int64)
    order = np.argsort(size, kind="stable")
    edges = np.flatnonzero(np.append(True, np.diff(size[order]) != 0))
    for start, stop in zip(edges, np.append(edges[1:], len(order)), strict=True):
        rows = order[start:stop]
        rows = rows[np.argsort(birth[rows], kind="stable")]
        gone = np.searchsorted(np.sort(death[rows]), birth[rows], "right")
        out[rows] = np.arange(len(rows)) - gone
    return out


def _most_at_once(view: _View, gradients: Mask) -> dict[int, int]:
    """Size -> how many gradients of it are alive after the backward pass that holds most."""
    if not view.backward or not gradients.any():
        return {}
    rows = np.flatnonzero(gradients)
    held = curve(
        view.blocks.birth[rows], view.blocks.death[rows], view.blocks.requested[rows], view.end
    )
    ends = np.array([run.end for run in view.backward])
    fullest = int(ends[held[ends].argmax()])  # value i of a curve is after event i - 1
    alive = gradients & view.blocks.alive(fullest - 1)
    sizes, counts = np.unique(view.blocks.requested[alive], return_counts=True)
    return dict(zip(sizes.tolist(), counts.tolist(), strict=True))


def _parameters(
    view: _View, static: Mask, needed: dict[int, int], signs: StackSigns
) -> tuple[Mask, Mask]:
    """Static blocks with a gradient of their size, then what the source of Module.to tells.

    ``Module._apply`` moves the parameters of a module before its buffers, so of the lines of that
    function that allocate, the last one moves buffers if there is more than one.
    """
    line = _apply_line(view, signs)
    moved = static & (line > 0)
    lines = np.unique(line[moved])
    buffer_line = int(lines[-1]) if len(lines) > 1 else 0
    rank = np.full(len(view.blocks), 4)
    rank[static & view.blocks.has_stack] = 3
    rank[static & (view.born == Phase.SETUP)] = 2
    rank[static & view.has(Sign.BUILD)] = 1
    rank[moved & (line != buffer_line)] = 0
    parameters = np.zeros(len(view.blocks), np.bool_)
    for size, count in needed.items():
        rows = np.flatnonzero(static & (view.blocks.requested == size))
        parameters[rows[np.argsort(rank[rows], kind="stable")][:count]] = True
    parameters |= moved & (line != buffer_line)
    buffers = moved & (line == buffer_line) & ~parameters
    if not needed and not parameters.any():
        # inference: what is there are the weights
        parameters = static & view.stays & ~buffers & (view.blocks.address > 0)
    return parameters, buffers


def _apply_line(view: _View, signs: StackSigns) -> Index:
    """Line of the innermost ``Module._apply`` of each block's stack; 0 without one."""
    of_stack = np.zeros(len(signs.stacks) + 1, np.int64)
    for stack in np.flatnonzero(signs.has(Sign.MOVE)).tolist():
        of_stack[stack] = next(
            f.line
            for f in signs.stacks[stack]
            if f.function == "_apply" and f.file.endswith("module.py")
        )
    return np.where(view.blocks.has_stack, of_stack[view.blocks.stack], 0)


def _copies_of(view: _View, rest: Mask, needed: dict[int, int]) -> Index:
    """Of blocks without a stack: as many whole copies of the parameters as there are, by size."""
    total = sum(size * count for size, count in needed.items())
    if not total:
        return np.zeros(0, np.int64)
    free = {
        size: np.flatnonzero(rest & ~view.blocks.has_stack & (view.blocks.requested == size))
        for size in needed
    }
    copies = min(len(free[size]) // count for size, count in needed.items())
    chosen = [free[size][: copies * count] for size, count in needed.items()]
    counters = rest & ~view.blocks.has_stack & (view.blocks.requested <= SCALAR_BYTES)
    if copies and int(counters.sum()) == sum(needed.values()):
        chosen.append(np.flatnonzero(counters))
    return np.concatenate(chosen)
