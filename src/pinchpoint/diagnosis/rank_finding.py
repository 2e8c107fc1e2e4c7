"""What the rules found on one rank of a job, and whether its ranks do that in turn."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pinchpoint.frozen import dataclass

FEWEST_IN_TURN = 2  # ranks
IN_TURN_RATIO = 1.5  # two ranks that never do it in the same step lose 2 times what one does


@dataclass(frozen=True, slots=True)
class RankFinding:
    """What one rule found on one rank (its position), as the rank's report says it."""

    id: str
    rank: int
    saving_ns: int
    place: str = ""  # function and file; empty where it has none
    saving_range_ns: tuple[int, int] | None = None  # least and most, as the rank's report has it
    far_steps: tuple[int, ...] = ()  # of the run, where it is about those alone
    in_steps_ns: tuple[int, ...] = ()  # what it takes in each step, of the rank's own

    def winning(self, at: int | None) -> "RankFinding":
        """With the least that it may win (0), the most (1), or what is said."""
        if at is None or self.saving_range_ns is None:
            return self
        return replace(self, saving_ns=self.saving_range_ns[at])


def in_turns_ratio(same: Sequence[RankFinding]) -> float:
    """What a job loses by what its ranks do in turn, against what the rank loses that does it most:
    a step takes as long as its last rank, and each step has one. 1 where ranks do it in the same
    steps, and where that is not known."""
    steps = [one.in_steps_ns for one in same]
    if len(steps) < FEWEST_IN_TURN or len({len(one) for one in steps}) > 1 or not steps[0]:
        return 1.0
    of_ranks = np.array(steps, float)
    most = float(of_ranks.mean(axis=1).max())
    return float(of_ranks.max(axis=0).mean()) / most if most else 1.0
