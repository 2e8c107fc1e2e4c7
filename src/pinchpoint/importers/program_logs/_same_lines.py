"""Lines of a log that differ in their digits only: what was found out of one is known of all.

Programs print some kinds of lines, each thousands of times. Which readers take a line, which of
its numbers is what, and where its stamp stands, takes a hundred expressions; where each digit of a
line is any digit, the places are the same, and only the numbers are read there.
"""

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from pinchpoint.importers.program_logs._quantities import Quantity
from pinchpoint.importers.program_logs._stamps import StampPlaces

_ZEROS = str.maketrans("123456789", "0" * 9)
_MOST = 4_000  # kinds of lines: programs print some hundred; a dictionary of more grows with a log
_MOST_NUMBERS = 10 * _MOST  # of all plans together: lines print some, and a few print hundreds


class Number(NamedTuple):
    """A number of such a line, and where its value goes."""

    begin: int
    end: int
    many: float  # of how many it is one: 12k has 1000
    scale: float  # from its unit to that of the series
    values: "array[float]"
    counts: Quantity | None  # where it counts steps


class Load(NamedTuple):
    """Which number of a line is the time that its data took, and which make up the whole step."""

    sums: list[float]  # of both, and how many lines
    load: int
    load_scale: float
    step: tuple[tuple[int, float], ...]  # each with its scale: one, or the parts of it

    def add(self, values: Sequence[float]) -> None:
        """Those of another line."""
        self.sums[0] += values[self.load] * self.load_scale
        self.sums[1] += sum(values[at] * scale for at, scale in self.step)
        self.sums[2] += 1


class Plan(NamedTuple):
    """What a line says at which places."""

    stamp: StampPlaces | None
    numbers: tuple[Number, ...]
    words: str  # how it begins, where nothing counts
    times: tuple[int, ...] = ()  # of its numbers: tell of a run where one is no time since 1970
    is_record: bool = False  # a dictionary that is printed
    load: Load | None = None


class SameLines:
    """Plans by the shape of a line, and by those digits of it that are of a name."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[tuple[int, int], ...]] = {}
        self._plans: dict[tuple[str, str], Plan] = {}
        self._seen: set[str] = set()
        self._numbers = 0

    def has_room(self) -> bool:
        """Whether another plan would be kept; a line need not be looked at for one that is not."""
        return len(self._plans) < _MOST and self._numbers < _MOST_NUMBERS

    def of(self, text: str) -> Plan | None:
        """How lines like this one are read, if one was."""
        shape = text.translate(_ZEROS)
        named = self._named.get(shape)
        if named is None:
            return None
        return self._plans.get((shape, _digits(text, named)))

    def is_new(self, text: str) -> bool:
        """Whether lines of this shape were not tried yet, or have digits that are of names."""
        shape = text.translate(_ZEROS)
        if shape in self._seen or len(self._seen) >= _MOST:
            return bool(self._named.get(shape))
        self._seen.add(shape)
        return True

    def keep(self, text: str, begin: int, opened: Sequence[tuple[int, int]], plan: Plan) -> None:
        """``begin``: where that begins of which digits may be names; ``opened``: where its numbers
        stand, in order."""
        if not self.has_room():
            return
        self._numbers += len(plan.numbers)
        shape = text.translate(_ZEROS)
        edges = [(begin, begin), *opened, (len(text), len(text))]
        named = tuple((a, b) for (_, a), (b, _) in pairwise(edges) if "0" in shape[a:b])
        # which numbers are quantities is the same in all lines of a shape
        self._plans[shape, _digits(text, self._named.setdefault(shape, named))] = plan


def _digits(text: str, places: Sequence[tuple[int, int]]) -> str:
    if not places:
        return ""
    return "\0".join([text[begin:end] for begin, end in places])


__all__ = ["Number", "Plan", "SameLines"]
