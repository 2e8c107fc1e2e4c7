"""Spans of idle time with a cause each, and how they are put together and cut."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Array, Codes, Ints, KeptRows, distinct


@dataclass(frozen=True, eq=False)
class IdlePieces:
    """Sorted, disjoint spans; arrays of one length."""

    gap: KeptRows  # number of the device's gap that the span is part of
    start: Ints
    end: Ints
    kind: Codes  # GapKind
    row: KeptRows  # the responsible one of host_rows

    def pick(self, rows: NDArray[np.generic]) -> "IdlePieces":
        """The spans at the given positions, or where the mask is True."""
        return IdlePieces(
            self.gap[rows], self.start[rows], self.end[rows], self.kind[rows], self.row[rows]
        )


def together(*parts: IdlePieces) -> IdlePieces:
    """All spans that have a length, in order of time."""
    lasting = [np.flatnonzero(part.end > part.start) for part in parts]

    def column(name: str) -> Array:
        found = [getattr(p, name)[rows] for p, rows in zip(parts, lasting, strict=True)]
        return np.concatenate(found)

    order = np.argsort(column("start"), kind="stable")
    # one column after the other: of a million gaps all of them at once would be 200 MB more
    return IdlePieces(*(column(name)[order] for name in IdlePieces.__annotations__))


def cut(pieces: IdlePieces, edges: Ints) -> IdlePieces:
    """The same pieces, none of which contains an edge; pieces are sorted and disjoint."""
    if not len(pieces.start):
        return pieces
    edges = distinct(edges)
    inside = np.searchsorted(pieces.start, edges, "left") - 1
    cuts = (inside >= 0) & (edges < pieces.end[inside])
    edges, inside = edges[cuts], inside[cuts]
    if not len(edges):
        return pieces
    copies = np.ones(len(pieces.start), np.int64)
    np.add.at(copies, inside, 1)
    halves = pieces.pick(np.repeat(np.arange(len(copies)), copies))
    later_half = inside + np.arange(1, len(edges) + 1)
    start, end = halves.start.copy(), halves.end.copy()
    start[later_half] = edges
    end[later_half - 1] = edges
    return replace(halves, start=start, end=end)


def merged(pieces: IdlePieces) -> IdlePieces:
    """Neighbours that touch and have one cause, as one."""
    if not len(pieces.start):
        return pieces
    new = np.ones(len(pieces.start), np.bool_)
    new[1:] = pieces.start[1:] != pieces.end[:-1]
    for column in (pieces.gap, pieces.kind, pieces.row):
        new[1:] |= column[1:] != column[:-1]
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(new)) - 1
    return replace(pieces.pick(first), end=pieces.end[last])
