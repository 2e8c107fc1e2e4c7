"""Which far step comes next, so that it can be recorded; and when steps have become longer.

A stall is over before a window can open; the samples are its witness. One that comes every so many
steps can be waited for: the window opens two steps before it, one to warm up and an ordinary one to
compare with. For those without a rhythm a window is opened that ends with the next one; where none
comes within twice the usual distance it is given up, and nothing is kept.

The windows of a run are made at its beginning. Where each step is longer than the one before, what
grows shows only late: a window of its own is opened once they are so much longer.
"""

from collections.abc import Callable
from itertools import pairwise
from math import inf
from statistics import median

from pinchpoint.capture.process.budget import NAMED_STEPS, TOTAL_NS
from pinchpoint.capture.process.step_clock import StepClock
from pinchpoint.capture.samples.far_steps import FarSteps
from pinchpoint.capture.settings import Kind

LOOKED_AT = 8  # last far steps; of more, an old rhythm would count
FEWEST = 3  # equal distances: two are an accident in a run that has many far steps
ALIKE_RATIO = 0.5  # of the usual excess: far steps of less have another cause
LEAD = 2  # steps before it: the profiler warms up in one, and one is ordinary
MOST = 2  # recordings of a run: the second shows whether the first was odd
COST_RATIO = 0.01  # of the time so far, with the recordings before, once that is more than these:
LEAST_COST_NS = TOTAL_NS  # what the windows of any run may cost, however soon it ends
WORTH_RATIO = (
    0.03  # of the time of all steps: below that, far steps without a rhythm are no finding
)
PATIENCE = 2.0  # usual distances: 6 in 7 stalls that come at random come within
MOST_STEPS = 64  # of a window: more of them, with stacks, fill memory
# To the steps around the first windows: two runs of one program differ by less; and to have what
# grows stand out where it goes on.
GROWN_RATIOS = (1.25, 2.5)
MOST_TRIES = 4  # windows for stalls without a rhythm, one in seven of which catches none


class Foresight:
    """Says when to record because a far step is foreseen."""

    def __init__(self, far: FarSteps) -> None:
        self._far, self._known, self.every = far, 0, 0
        self._made = self._tries = self._grown = 0
        self._recorded_ns = 0  # a typical step when all was recorded
        self._least_ns = 0  # of the steps in the open window: an ordinary one, recorded
        self.step_cost_ns: Callable[[], float] = lambda: 0.0  # of one recorded step, with names
        self.most_steps: int | None = None  # of a window for a stall without a rhythm
        self.keeps = True  # whether what the window holds is worth keeping

    def due(self, clock: StepClock) -> Kind | None:
        """The kind of recording that should open at this edge."""
        if self._has_grown(clock):
            return "late"
        return "rare" if self._foreseen(clock) else None

    def _has_grown(self, clock: StepClock) -> bool:
        """Whether steps are longer than they were recorded, and a few more may be."""
        typical_ns = self._far.typical_ns
        if not self._recorded_ns:
            self._recorded_ns = typical_ns
        ratio = next(iter(GROWN_RATIOS[self._grown :]), inf)
        if not typical_ns or typical_ns <= ratio * self._recorded_ns:
            return False
        cost_ns = NAMED_STEPS * max(typical_ns, self.step_cost_ns())
        if 1.5 * self._far.disturbed_ns + cost_ns > _allowed_ns(clock):
            return False
        self._grown += 1
        self.most_steps = None
        return True

    def _foreseen(self, clock: StepClock) -> bool:
        """Whether a far step comes next, or is to be waited for."""
        far = self._far
        if far.far != self._known:
            self._known, self.every = far.far, self._distance()
        if self._made >= MOST:
            return False
        if not self.every:
            return self._waits_for_any(clock)
        ahead = clock.edges - 1 + LEAD - far.numbers[-1]
        if ahead <= 0 or ahead % self.every or not self._fits(clock):
            return False
        self._made += 1
        self.most_steps, self.keeps = None, True
        return True

    def caught(self, clock: StepClock, recorded: int) -> bool:
        """A step has ended, the window holds so many before it (-1: this one was not recorded):
        whether it was what a window without a rhythm waits for."""
        if self.most_steps is None or self.keeps or recorded < 0 or not clock.interval_ns:
            return False
        took_ns = clock.interval_ns[-1]
        usual_ns = self._least_ns or self._far.typical_ns
        self._least_ns = min(usual_ns, took_ns) if self._least_ns else took_ns
        if took_ns - usual_ns >= ALIKE_RATIO * median(self._far.excess[-LOOKED_AT:]):
            self._made += 1
            self.keeps = True
        return self.keeps

    def _waits_for_any(self, clock: StepClock) -> bool:
        """Whether a window should open that ends with the next far step, whenever that comes."""
        far = self._far
        if far.far <= FEWEST or self._tries >= MOST_TRIES:
            return False
        steps = round(PATIENCE * far.count / far.far) + LEAD
        worth = far.excess_ns >= WORTH_RATIO * far.total_ns
        if not worth or steps > MOST_STEPS or not self._fits(clock, steps):
            return False
        self._tries += 1
        self.most_steps, self.keeps, self._least_ns = steps, False, 0
        return True

    def _distance(self) -> int:
        """Steps from one far step to the next, where the last ones were equal; else 0."""
        numbers, excess = self._far.numbers[-LOOKED_AT:], self._far.excess[-LOOKED_AT:]
        least = ALIKE_RATIO * median(excess)
        alike = [n for n, ns in zip(numbers, excess, strict=True) if ns >= least]
        apart = [b - a for a, b in pairwise(alike)][-FEWEST:]
        regular = len(apart) == FEWEST and len(set(apart)) == 1 and apart[0] > LEAD
        return apart[0] if regular and numbers[-1] == alike[-1] else 0

    def _fits(self, clock: StepClock, steps: int = 1) -> bool:
        """Whether one more recording stays within the budget: by what the ones before it took, and
        by what its steps cost, of which the last is as much dearer as it is longer."""
        far = self._far
        longest_ns = far.typical_ns + median(far.excess[-LOOKED_AT:])
        cost_ns = max(far.typical_ns, self.step_cost_ns())
        cost_ns *= steps - 1 + longest_ns / max(far.typical_ns, 1)
        return 1.5 * far.disturbed_ns + cost_ns <= _allowed_ns(clock)


def _allowed_ns(clock: StepClock) -> float:
    return max(COST_RATIO * clock.elapsed_ns, LEAST_COST_NS)
