"""Facts about blocks that decide what they are: births and deaths in phases, signs of stacks."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.memory.lives import Lives
from pinchpoint.analysis.memory.phases import Phase, Phases, Run
from pinchpoint.analysis.memory.replay import Replay
from pinchpoint.analysis.memory.stacks import Sign, StackSigns
from pinchpoint.trace.arrays import Codes, Ints, Mask


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


def block_view(replay: Replay, found: Phases, signs: StackSigns) -> BlockView:
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
