"""Where a figure that is measured run after run changed for good, and by how much.

Pettitt's test (Applied Statistics 28, 1979): of all places at which a series could be split, the
one at which ranks before and after differ most; how likely that is without any change is known
whatever the distribution. Both sides are split further as long as it speaks. The newest runs are
too few for it: they count as changed where the test of Mann and Whitney tells them from those
before, and their medians are four standard errors apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp

import numpy as np

from pinchpoint.compare.noise import chance
from pinchpoint.trace.arrays import Floats

CHANCE = 0.001  # of saying so without a change: one series in a thousand, whatever its length
# Times of two recordings of one program differ by a few per cent without any change
# (docs/stability.md): a smaller change is not said to be one.
SAME_RATIO = 0.02
FEWEST = 3  # values a side: a median of fewer is one value
MOST_NEWEST = 16  # newest values that are looked at together; of more, Pettitt's test can tell
MOST_BEFORE = 60  # values before them: older ones are of another time
NEWEST_CHANCE = 0.002  # of the test of Mann and Whitney; 3 beyond all of 20 have 0.0011
SIGMAS = 4.0  # standard errors by which medians must differ as well, as many places are tried
MAD_TO_SIGMA, MEDIAN_ERROR = 1.4826, 1.2533  # of a normal distribution; the second times σ / √n
COMPARED = 20  # values on each side of a change that say what it changed


@dataclass(frozen=True)
class Shift:
    """A change for good: ``at`` is the first value after it."""

    at: int
    before: float  # median of the values before it
    after: float

    @property
    def ratio(self) -> float:
        """What it added, as a share of what was before."""
        return self.after / self.before - 1


def shifts(values: Floats) -> tuple[Shift, ...]:
    """All changes of a series of positive values, oldest first."""
    places = sorted(_splits(values, 0, len(values)))
    edges = [0, *places, len(values)]
    found = [_shift(values, *edges[i : i + 3]) for i in range(len(places))]
    last = edges[-2]
    if (newest := _newest(values[last:])) is not None:
        found.append(_shift(values, last, last + newest, len(values)))
    return tuple(shift for shift in found if abs(shift.ratio) >= SAME_RATIO)


def _splits(values: Floats, begin: int, end: int) -> Iterator[int]:
    count = end - begin
    if count < 2 * FEWEST:
        return
    ranks = _ranks(values[begin:end])
    before = np.arange(1, count)
    excess = np.abs(2 * np.cumsum(ranks)[:-1] - before * (count + 1))
    excess[: FEWEST - 1] = excess[count - FEWEST :] = 0
    split = int(np.argmax(excess)) + 1
    if 2 * exp(-6 * float(excess[split - 1]) ** 2 / (count**3 + count**2)) > CHANCE:
        return
    yield begin + split
    yield from _splits(values, begin, begin + split)
    yield from _splits(values, begin + split, end)


def _ranks(values: Floats) -> Floats:
    """From 1; equal values share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2)[which]
    return ranks


def _newest(values: Floats) -> int | None:
    """Where the newest values begin that are clearly beyond the ones before; None: nowhere.

    Of several such places the one after and before which values scatter least.
    """
    best: tuple[float, int | None] = (float("inf"), None)
    for newest in range(FEWEST, min(MOST_NEWEST, len(values) // 2) + 1):
        at = len(values) - newest
        old, new = values[max(0, at - MOST_BEFORE) : at], values[at:]
        middle = np.median(old)
        sigma = MAD_TO_SIGMA * np.median(np.abs(old - middle))
        usual = SIGMAS * MEDIAN_ERROR * sigma / newest**0.5
        if abs(np.median(new) - middle) > usual and chance(old, new) <= NEWEST_CHANCE:
            scatter = float(np.abs(values[:at] - middle).sum() + np.abs(new - np.median(new)).sum())
            best = min(best, (scatter, at))
    return best[1]


def _shift(values: Floats, begin: int, at: int, end: int) -> Shift:
    before, after = values[max(begin, at - COMPARED) : at], values[at : min(end, at + COMPARED)]
    return Shift(at, float(np.median(before)), float(np.median(after)))


__all__ = ["SAME_RATIO", "Shift", "shifts"]
