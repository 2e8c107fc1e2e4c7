"""Blocks that outlive a pass: optimizer state, gradients, parameters, buffers, scratch."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.memory.allocator.lives import Lives
from pinchpoint.analysis.memory.allocator.replay import AllocatorReplay, curve
from pinchpoint.analysis.memory.owners.phases import Phase, Phases, Run
from pinchpoint.analysis.memory.owners.stacks import Sign, StackSigns
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Codes, Ints, Mask

# ------------------------------------------------------------------------------------------------
# Facts about blocks that decide what they are: births and deaths in phases, signs of stacks.


@dataclass(frozen=True, eq=False)
class BlockView:
    """One row a block, as in Lives."""

    blocks: Lives
    end: int
    sign: NDArray[np.int32]
    freed_outside_module: Mask
    zeroed: Mask  # let go by zero_grad
    born: Codes  # Phase at birth; UNKNOWN before the recording
    died: Codes  # Phase at death; UNKNOWN if it did not die
    run_end: Ints  # end of the run of phases that it was born in
    then_backward: Mask  # that run is followed by a backward pass
    backward: tuple[Run, ...]
    forward: tuple[Run, ...]
    optimizer: tuple[Run, ...]
    runs: tuple[Run, ...]

    def has(self, sign: Sign) -> Mask:
        """Blocks whose stack shows any of the signs."""
        result: Mask = (self.sign & int(sign)) != 0
        return result

    @property
    def stays(self) -> Mask:
        """Never freed while recording."""
        result: Mask = self.blocks.death == self.end
        return result


def block_view(replay: AllocatorReplay, found: Phases, signs: StackSigns) -> BlockView:
    """Look up everything once."""
    blocks, end = replay.blocks, len(replay)
    sign = np.where(blocks.has_stack, np.append(signs.sign, 0)[blocks.stack], 0)
    freeing = np.append(signs.sign, 0)[blocks.freed_by]
    in_module = (freeing & int(Sign.MODULE_CALL)) != 0
    of_event = np.append(found.of_event, Phase.UNKNOWN)
    run_end, then_backward = np.zeros(end + 1, np.int64), np.zeros(end + 1, np.bool_)
    for run, following in zip(found.runs, (*found.runs[1:], None), strict=False):
        run_end[run.first : run.end] = run.end
        if following is not None and following.phase == Phase.BACKWARD:
            then_backward[run.first : run.end] = True
    return BlockView(
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
        runs=found.runs,
    )


# ------------------------------------------------------------------------------------------------
# Blocks that outlive a pass: optimizer state, gradients, parameters, buffers, scratch.


# Scratch memory that cuBLAS keeps for each handle and stream: getChosenWorkspaceSize of
# aten/src/ATen/cuda/CublasHandlePool.cpp (32 MiB on Hopper, 8.125 MiB before) and cuBLASLt's 1 MiB.
WORKSPACE_BYTES = (33_554_432, 8_519_680)
LT_WORKSPACE_BYTES = 1_048_576  # the same source
SCALAR_BYTES = 8  # step counters of optimizers


def optimizer_state(view: BlockView) -> tuple[Mask, Mask]:
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


def kept_scratch(view: BlockView) -> Mask:
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


def static(view: BlockView) -> Mask:
    """There before the first pass, and not a leftover of an earlier one."""
    early = view.blocks.before | (view.born == Phase.SETUP) | view.has(Sign.MOVE | Sign.BUILD)
    first = view.backward[0].end if view.backward else view.end
    result: Mask = early & (view.blocks.death >= first) & ~view.has(Sign.MODULE_CALL)
    return result


def gradients(view: BlockView, static: Mask) -> Mask:
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


def _concurrent(size: Ints, birth: Ints, death: Ints) -> Ints:
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


def most_at_once(view: BlockView, gradients: Mask) -> dict[int, int]:
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


def parameters(
    view: BlockView, static: Mask, needed: dict[int, int], signs: StackSigns
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
    early = np.flatnonzero(static)
    for size, count in needed.items():
        rows = early[view.blocks.requested[early] == size]
        parameters[rows[np.argsort(rank[rows], kind="stable")][:count]] = True
    parameters |= moved & (line != buffer_line)
    buffers = moved & (line == buffer_line) & ~parameters
    if not needed and not parameters.any():
        # inference: what is there are the weights
        parameters = static & view.stays & ~buffers & (view.blocks.address > 0)
    return parameters, buffers


def _apply_line(view: BlockView, signs: StackSigns) -> Ints:
    """Line of the innermost ``Module._apply`` of each block's stack; 0 without one."""
    of_stack = np.zeros(len(signs.stacks) + 1, np.int64)
    for stack in np.flatnonzero(signs.has(Sign.MOVE)).tolist():
        of_stack[stack] = next(
            f.line
            for f in signs.stacks[stack]
            if f.function == "_apply" and f.file.endswith("module.py")
        )
    return np.where(view.blocks.has_stack, of_stack[view.blocks.stack], 0)


def copies_of(view: BlockView, rest: Mask, needed: dict[int, int]) -> Ints:
    """Of blocks without a stack: as many whole copies of the parameters as there are, by size."""
    total = sum(size * count for size, count in needed.items())
    if not total:
        return np.zeros(0, np.int64)
    rows = np.flatnonzero(rest & ~view.blocks.has_stack)
    free = {size: rows[view.blocks.requested[rows] == size] for size in needed}
    copies = min(len(free[size]) // count for size, count in needed.items())
    chosen = [free[size][: copies * count] for size, count in needed.items()]
    counters = rest & ~view.blocks.has_stack & (view.blocks.requested <= SCALAR_BYTES)
    if copies and int(counters.sum()) == sum(needed.values()):
        chosen.append(np.flatnonzero(counters))
    return np.concatenate(chosen)
