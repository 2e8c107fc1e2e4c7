"""What changes have left of a lane's recorded host time, so that none of it is taken twice.

Findings overlap: two rules may blame the same function, and their fixes together save it once.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.trace.intervals import Intervals, covered_before, intersect, subtract, union

Ints = NDArray[np.int64]


def covered(spans: Intervals, start: Ints, end: Ints) -> Ints:
    """Time of each ``[start, end)`` inside the spans."""
    end = np.maximum(start, end)
    inside: Ints = covered_before(spans, end) - covered_before(spans, start)
    return inside


@dataclass(frozen=True, eq=False)
class HostLeft:
    """Recorded time by the share that is left of it; what is in no piece is left whole."""

    pieces: tuple[tuple[Intervals, float], ...] = ()

    def covered(self, spans: Intervals, start: Ints, end: Ints) -> Ints:
        """What is left, inside the spans, of each ``[start, end)``."""
        total = covered(spans, start, end)
        for piece, left in self.pieces:
            total -= ((1 - left) * covered(intersect(spans, piece), start, end)).astype(np.int64)
        return total

    def scaled(self, spans: Intervals, factor: float) -> "HostLeft":
        """The same after what is left in the spans was scaled."""
        found: dict[float, Intervals] = {}
        rest = spans
        for piece, left in self.pieces:
            for part, share in (
                (intersect(piece, spans), left * factor),
                (subtract(piece, spans), left),
            ):
                found[share] = union(found[share], part) if share in found else part
            rest = subtract(rest, piece)
        found[factor] = union(found[factor], rest) if factor in found else rest
        return HostLeft(tuple((piece, share) for share, piece in found.items() if len(piece.start)))
