"""What of all that comes round in a program is its step.

A loop turns because its body is called for, and in its body functions are called and other loops
turn. All of these come round. The step is the outermost of them that goes on regularly, as far as
that can be seen in some seconds: a loop over epochs comes round too seldom to be known, and one
that comes round more often than a thousand times a second is part of something.
"""

from collections.abc import Sequence
from itertools import pairwise

from pinchpoint.frozen import dataclass

SHORTEST_NS = 1_000_000  # of a step: to time one takes five microseconds
KEPT = 33  # times of each: 32 intervals tell what is usual
FEWEST = 5  # rounds: four intervals, the first of which may be longer
FEWEST_AROUND, FEWEST_ALONE = 2, 3  # rounds of what may soon be known: around it, or of all
LASTS_NS = 750_000_000  # a regular loop of a set-up is over by then
IRREGULAR_RATIO = 2.0  # mean to median: rounds that come in bursts are parts of something
SILENT_RATIO = 3.0  # of its usual interval: no longer going on
LOOK_NS = 300_000_000  # beside it: from one look to the next
ALIKE_RATIO = 0.75  # of the outermost: once in each of its rounds; twice is a half
# How long to wait for what has come round twice, and is around what is known: five rounds of 2 s.
PATIENCE_NS = 12_000_000_000


@dataclass(frozen=True)
class Rhythm:
    """When the program came to one place; ``times_ns`` are the last ones."""

    depth: int  # of the function, below the outermost
    count: int
    first_ns: int
    times_ns: tuple[int, ...]

    @property
    def interval_ns(self) -> float:
        """On average of the last ones; 0 where it came once."""
        n = len(self.times_ns) - 1
        return (self.times_ns[-1] - self.times_ns[0]) / n if n > 0 else 0.0

    @property
    def even(self) -> bool:
        """Whether it came as steps do: not in bursts, and not more often."""
        took_ns = sorted(b - a for a, b in pairwise(self.times_ns))
        usual_ns = took_ns[len(took_ns) // 2] if took_ns else 0
        return usual_ns >= SHORTEST_NS and self.interval_ns <= IRREGULAR_RATIO * usual_ns

    @property
    def silent_ns(self) -> int:
        """When it comes no more, unless it has come again."""
        return self.times_ns[-1] + round(SILENT_RATIO * self.interval_ns) + LOOK_NS


@dataclass(frozen=True)
class Choice:
    """Position of the step among rhythms; None: not known, and whether that may soon change."""

    at: int | None = None
    soon: bool = False


def choose(rhythms: Sequence[Rhythm], now_ns: int, since_ns: int) -> Choice:
    """The outermost that is regular and goes on, looked for since so long.

    Where something around it has come round twice or more, but not often enough to be known, that
    is waited for.
    """
    going = [(i, one) for i, one in enumerate(rhythms) if one.count > 1 and now_ns <= one.silent_ns]
    known = [(i, one) for i, one in going if one.count >= FEWEST and one.even]
    patient = since_ns < PATIENCE_NS
    found = _outermost([one for _, one in known])
    around = any(
        (FEWEST_AROUND if found else FEWEST_ALONE) <= one.count < FEWEST
        and one.even
        and (found is None or _outermost([found, one]) is one)
        for _, one in going
    )
    if found is None or (around and patient):
        return Choice(soon=around and patient)
    at = next(i for i, one in known if one is found)
    if found.times_ns[-1] - found.first_ns < LASTS_NS:
        return Choice(soon=patient)
    return Choice(at)


def _outermost(rhythms: Sequence[Rhythm]) -> Rhythm | None:
    """The one that comes least often; of those that come once in each of its rounds, too, the one
    in the outermost function."""
    longest_ns = max((one.interval_ns for one in rhythms), default=0.0)
    alike = [one for one in rhythms if one.interval_ns >= ALIKE_RATIO * longest_ns]
    return min(alike, key=lambda one: one.depth, default=None)
