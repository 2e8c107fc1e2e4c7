"""Which far step comes next, so that it can be recorded.

A stall is over before a window can open; the samples are its witness. One that comes every so many
steps can be waited for: the window opens two steps before it, one to warm up and an ordinary one to
compare with.
"""

from itertools import pairwise
from statistics import median

from pinchpoint.capture.process.step_clock import StepClock
from pinchpoint.capture.samples.far_steps import FarSteps

LOOKED_AT = 8  # last far steps; of more, an old rhythm would count
FEWEST = 3  # equal distances: two are an accident in a run that has many far steps
ALIKE_RATIO = 0.5  # of the usual excess: far steps of less have another cause
LEAD = 2  # steps before it: the profiler warms up in one, and one is ordinary
MOST = 2  # recordings of a run: the second shows whether the first was odd
COST_RATIO = 0.01  # of the time so far, with the recordings before: half of what a run may cost


class Foresight:
    """Says when to record because a far step is foreseen."""

    def __init__(self, far: FarSteps) -> None:
        self._far, self._known, self.every = far, 0, 0
        self._made = 0

    def due(self, clock: StepClock) -> bool:
        """Whether a recording should open at this edge."""
        far = self._far
        if far.far != self._known:
            self._known, self.every = far.far, self._distance()
        if not self.every or self._made >= MOST:
            return False
        ahead = clock.edges - 1 + LEAD - far.numbers[-1]
        if ahead <= 0 or ahead % self.every or not self._fits(clock):
            return False
        self._made += 1
        return True

    def _distance(self) -> int:
        """Steps from one far step to the next, where the last ones were equal; else 0."""
        numbers, excess = self._far.numbers[-LOOKED_AT:], self._far.excess[-LOOKED_AT:]
        least = ALIKE_RATIO * median(excess)
        alike = [n for n, ns in zip(numbers, excess, strict=True) if ns >= least]
        apart = [b - a for a, b in pairwise(alike)][-FEWEST:]
        regular = len(apart) == FEWEST and len(set(apart)) == 1 and apart[0] > LEAD
        return apart[0] if regular and numbers[-1] == alike[-1] else 0

    def _fits(self, clock: StepClock) -> bool:
        """Whether one more recording stays within the budget; the first ones say what it costs."""
        spent_ns = self._far.disturbed_ns
        return 1.5 * spent_ns <= COST_RATIO * clock.elapsed_ns
