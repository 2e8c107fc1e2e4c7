"""What the rules found on one rank of a job, and on several, and whether these do it in turn."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pinchpoint.analysis.replay.prediction import Prediction
from pinchpoint.diagnosis.finding import Found
from pinchpoint.frozen import dataclass

# What a rank's own report adds to advice about waiting for others, and no report about all needs.
ASK_ALL_RANKS = "; whether a rank is late, all of them together show: pinchpoint ranks"
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
    in_collectives: bool = False  # the rank stands in collectives for so long
    beside_ns: int = 0  # of a finding about collectives, own work that goes with them

    def winning(self, at: int | None) -> "RankFinding":
        """With the least that it may win (0), the most (1), or what is said."""
        if at is None or self.saving_range_ns is None:
            return self
        return replace(self, saving_ns=self.saving_range_ns[at])


@dataclass(frozen=True)
class JobFinding:
    """One cause with what fixing it gives the job."""

    id: str
    saving_ns: int
    predicted: Prediction
    finding: Found | None = None  # None: see the report of ``shown_by``
    ranks: tuple[int, ...] = ()  # positions of the ranks that show it
    shown_by: int | None = None  # position of the rank that shows it best
    of_ranks: tuple[RankFinding, ...] = ()  # what those ranks say, the one that shows it best first

    @property
    def in_turn(self) -> bool:
        """Whether its ranks do it in different steps, so that each step has one that does."""
        return in_turns_ratio(self.of_ranks) >= IN_TURN_RATIO

    @property
    def in_far_steps(self) -> bool:
        """Whether it is about steps of the run that were far longer than others."""
        return any(one.far_steps for one in self.of_ranks)


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


_OBJECTS, _COLLECTION = "objects-between-ranks", "python-gc"


def with_collections(candidates: list[JobFinding], base_ns: int) -> list[JobFinding]:
    """Garbage that is collected where ranks exchange objects is what these leave, step by step:
    without them neither is there."""
    places = {one.place for c in candidates if c.id == _OBJECTS for one in c.of_ranks} - {""}
    left = [
        c
        for c in candidates
        if c.id == _COLLECTION and c.in_far_steps and {one.place for one in c.of_ranks} <= places
    ]
    return [
        _of_sum(c, left, base_ns) if c.id == _OBJECTS and left else c
        for c in candidates
        if c not in left
    ]


def _of_sum(found: JobFinding, left: Sequence[JobFinding], base_ns: int) -> JobFinding:
    """With what else goes with it, which takes time of its own."""
    alone = [found.predicted, *(c.predicted for c in left)]
    step = max(base_ns - found.saving_ns - sum(c.saving_ns for c in left), 0)
    low = min(step, *(one.range_ns[0] for one in alone))
    high = max(base_ns - sum(base_ns - one.range_ns[1] for one in alone), step)
    return replace(
        found, saving_ns=base_ns - step, predicted=Prediction(step, (low, high), base_ns)
    )
