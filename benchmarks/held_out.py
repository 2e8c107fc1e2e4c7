"""Constants of ranges chosen on other programs than those they are tried on.

Leave one program family out, choose the shares of :mod:`~pinchpoint.analysis.replay.ranges` on the
rest, try them on the family. Chosen are the shares with the smallest width among those that hold
at least ``WANTED`` of the measured steps, and for the step as it is also of those that recording
distorted; widths count up to twice the step, so that a few predictions that say nothing do not
decide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.replay.ranges import (
    AFTER_A_FIX,
    AS_IT_IS,
    DISTORTED_RATIO,
    Doubts,
    Made,
    range_ns,
)

WIDEST = 2.0  # of the step
WANTED_AS_IT_IS = 0.90  # of measured steps, in the families that choose: 0.85 is the aim in others
WANTED_AFTER_A_FIX = 0.88  # with few families, more asks for shares that one family decides
_TRIED_AS_IT_IS = {
    "device": (0.03, 0.04, 0.05, 0.06),
    "uneven": (1.0, 1.3),
    "host": (0.08, 0.12, 0.16, 0.20, 0.25, 0.30, 0.40),
    "recording": (0.10, 0.15, 0.20, 0.25, 0.30, 0.40),
}
_TRIED_AFTER_A_FIX = {
    "device": (0.04, 0.06, 0.075),
    "changed_device": (0.10, 0.15, 0.25, 0.40),
    "host": (0.30, 0.40, 0.50, 0.60, 0.70, 0.85, 1.00),
    "fix": (0.04, 0.08, 0.12, 0.16, 0.20, 0.25),
    "beyond": (0.0, 0.03, 0.05, 0.10),
}


@dataclass(frozen=True)
class Predicted:
    """A predicted step beside the measured one."""

    name: str
    family: str
    predicted_ns: int
    range_ns: tuple[int, int]
    true_ns: float
    made: Made | None = None  # None: the range does not rest on the shares
    bound_ns: int | None = None
    base_ns: int | None = None

    @property
    def holds(self) -> bool:
        """Whether the range holds the measured time."""
        return self.range_ns[0] <= self.true_ns <= self.range_ns[1]

    @property
    def error(self) -> float:
        """Of the predicted step."""
        return abs(self.predicted_ns / self.true_ns - 1)

    @property
    def width(self) -> float:
        """Between the ends, as a share of the predicted step."""
        return (self.range_ns[1] - self.range_ns[0]) / max(self.predicted_ns, 1)

    def with_doubts(self, doubts: Doubts) -> "Predicted":
        """The same prediction with the range that these shares give."""
        if self.made is None:
            return self
        shift = self.predicted_ns - self.made.step_ns
        low, high = (round(end + shift) for end in range_ns(self.made, doubts))
        if self.base_ns is not None:  # of a fix: neither below what it leaves nor a loss
            low = min(max(low, ceil(self.bound_ns or 0)), self.predicted_ns)
            high = min(high, max(self.base_ns, self.predicted_ns))
        return replace(self, range_ns=(low, high))


@dataclass(frozen=True)
class HeldOut:
    """Each prediction with the range of shares that its family had no part in."""

    in_use: tuple[Predicted, ...]  # as the product says them
    said: tuple[Predicted, ...]
    chosen: Mapping[Doubts, int]  # shares, and how many families got them
    with_all: Doubts | None  # what all families together choose


def as_it_is(said: Sequence[Predicted]) -> HeldOut:
    """For the step without the profiler."""
    return _held_out(said, _tried(AS_IT_IS, _TRIED_AS_IT_IS), WANTED_AS_IT_IS)


def after_a_fix(said: Sequence[Predicted]) -> HeldOut:
    """For the step after the fix; what is not of the fix stays as in ``AFTER_A_FIX``."""
    return _held_out(said, _tried(AFTER_A_FIX, _TRIED_AFTER_A_FIX), WANTED_AFTER_A_FIX)


def _tried(base: Doubts, shares: Mapping[str, Sequence[float]]) -> list[Doubts]:
    combinations = product(*shares.values())
    return [replace(base, **dict(zip(shares, values, strict=True))) for values in combinations]


def _held_out(said: Sequence[Predicted], tried: list[Doubts], wanted: float) -> HeldOut:
    if not said:
        return HeldOut((), (), {}, None)
    ranges = [[p.with_doubts(doubts) for p in said] for doubts in tried]
    holds = np.array([[p.holds for p in of] for of in ranges])
    width = np.minimum([[p.width for p in of] for of in ranges], WIDEST)
    families = np.array([p.family for p in said])
    apart = np.array([p.base_ns is None and _distorted(p.made) for p in said])
    out, chosen = list(said), dict.fromkeys(tried, 0)
    for family in sorted(set(families.tolist())):
        others = families != family
        best = _smallest(holds[:, others], width[:, others], apart[others], wanted)
        chosen[tried[best]] += 1
        for row in np.flatnonzero(~others).tolist():
            out[row] = ranges[best][row]
    kept = {doubts: count for doubts, count in chosen.items() if count}
    with_all = tried[_smallest(holds, width, apart, wanted)]
    return HeldOut(tuple(said), tuple(out), kept, with_all)


def _distorted(made: Made | None) -> bool:
    return made is not None and made.recording_ns > DISTORTED_RATIO * made.step_ns


def _smallest(
    holds: NDArray[np.bool_],
    width: NDArray[np.float64],
    apart: NDArray[np.bool_],
    wanted: float,
) -> int:
    """The shares of least mean width that hold enough; those that hold most if none do."""
    if not holds.shape[1]:
        return 0
    share = holds.mean(axis=1)
    if apart.any():
        share = np.minimum(share, holds[:, apart].mean(axis=1))
    enough = share >= min(wanted, share.max())
    return int(np.where(enough, width.mean(axis=1), np.inf).argmin())
