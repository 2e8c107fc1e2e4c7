"""One time for all ranks, from the collectives that they leave together.

Recordings carry the clock of their machine. Clocks of machines differ by milliseconds and drift
apart by some parts in a million; device clocks are converted by each driver on its own. But no rank
can leave an all-reduce before the last one has entered it, and all leave within microseconds. So a
rank's offset is what makes its ends agree with the median end over all ranks. What is left over
is the uncertainty.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.ranks.matching import (
    MOST_DRIFT,
    GroupName,
    Matching,
    by_group,
    synchronises,
    thinned,
)
from pinchpoint.analysis.ranks.summary import RankSummary, unpack
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Floats, Ints, Mask

Small = NDArray[np.int32]

ANCHORS = 64  # collectives of a group that fix a rank's clock
MOST_ANCHORS = 200_000  # of one group: about 100 bytes each while clocks are aligned
FEWEST_ANCHORS = 24  # of a rank: half of them are left at worst, enough to tell a drift
ROUNDS = 3  # ranks move to the others' median, which moves too; drift is read in the last
FEWEST_FOR_DRIFT = 12  # four in each third: a median of fewer is one of them
SURE_RATIO = 3.0  # a drift must move the ends by this many times what they scatter


@dataclass(frozen=True, eq=False)
class Clocks:
    """How each rank's clock differs from the first one's; arrays of one element a rank."""

    aligned: Mask
    offset_ns: Ints  # what the rank's clock is ahead by, at ``middle_ns``
    drift: Floats  # relative
    uncertainty_ns: Floats  # median distance of its ends from the common ones; nan if not aligned
    anchors: Ints
    middle_ns: int

    def common(self, rank: int, times_ns: Ints) -> Ints:
        """Times of the rank (its position) on the common clock."""
        drifted = self.drift[rank] * (times_ns - self.middle_ns)
        out: Ints = times_ns - self.offset_ns[rank] - drifted.astype(np.int64)
        return out

    @property
    def typical_uncertainty_ns(self) -> int | None:
        """Median over the aligned ranks but the reference; None where nothing is aligned."""
        known = self.uncertainty_ns[self.aligned & (self.anchors > 0)]
        return round(float(np.median(known))) if len(known) else None


def anchors_a_rank(ranks: int) -> int:
    """How many collectives of a group fix a rank's clock, so that all of them fit into memory."""
    return min(max(MOST_ANCHORS // max(ranks, 1), FEWEST_ANCHORS), ANCHORS)


@dataclass
class _Ends:
    """Anchors of one group, rank after rank."""

    ranks: "array[int]" = field(default_factory=lambda: array("q"))
    counts: "array[int]" = field(default_factory=lambda: array("q"))  # of each of these ranks
    keys: "array[int]" = field(default_factory=lambda: array("q"))
    ends: "array[int]" = field(default_factory=lambda: array("q"))


@dataclass
class Anchors:
    """Ends of a few collectives of every rank, 16 bytes each; at most ``each`` of a group."""

    each: int = ANCHORS
    ranks: int = 0
    by_group: dict[GroupName, _Ends] = field(default_factory=lambda: defaultdict(_Ends))

    def add(self, summary: RankSummary, matching: Matching) -> None:
        """The next rank, in order."""
        end = unpack(summary.calls.start_ns) + unpack(summary.calls.duration_ns)
        usable = np.array([synchronises(k.kind) for k in summary.call_kinds], np.bool_)
        for calls in by_group(summary):
            keys = matching.keys(summary, calls)
            if keys is None:
                continue
            chosen = usable[calls.kind]
            keys, at = keys[chosen], calls.at[chosen]
            kept = thinned(keys, self.each)
            if kept.any():
                group = self.by_group[calls.group]
                group.ranks.append(self.ranks)
                group.counts.append(int(kept.sum()))
                group.keys.frombytes(np.ascontiguousarray(keys[kept], np.int64).tobytes())
                group.ends.frombytes(np.ascontiguousarray(end[at[kept]], np.int64).tobytes())
        self.ranks += 1


def align(anchors: Anchors) -> Clocks:
    """Offset and drift of every rank that shares collectives with others.

    The anchors are given up meanwhile.
    """
    shared = [members for members in anchors.by_group.values() if len(members.ranks) > 1]
    anchors.by_group.clear()
    middle = _middle(shared)
    groups = []
    while shared:
        joined = _joined(shared.pop(0), middle)
        if len(joined.rank):
            groups.append(joined)
    n = anchors.ranks
    offset, aligned = _first_offsets(groups, n)
    drift, spread = np.zeros(n), np.full(n, np.nan)
    mine = _by_rank(groups, n)
    for turn in range(ROUNDS):
        residual = _residuals(groups, offset, drift)
        for rank, rows in mine.each():
            offset[rank] += float(np.median(residual[rows]))
            if turn == ROUNDS - 1:
                drift[rank] = _slope(residual[rows], mine.end[rows])
    first = int(np.argmax(aligned)) if aligned.any() else 0
    too_much = np.abs(drift - drift[first]) > MOST_DRIFT  # of two ranks each has half of it
    drift[too_much] = drift[first]
    left = np.abs(_residuals(groups, offset, drift))
    left *= np.concatenate([g.widen() for g in groups]) if groups else np.zeros(0)
    for rank, rows in mine.each():
        spread[rank] = float(np.median(left[rows]))
    offset, drift = offset - offset[first], drift - drift[first]
    count = np.diff(mine.edges).astype(np.int64)
    return Clocks(aligned, np.rint(offset).astype(np.int64), drift, spread, count, middle)


def _middle(shared: list[_Ends]) -> int:
    ends = [np.frombuffer(members.ends, np.int64) for members in shared]
    return int(np.median(np.concatenate(ends))) if ends else 0


@dataclass(frozen=True, eq=False)
class _Joined:
    """All anchors of a group, sorted by key; ``edges`` bound the same key."""

    rank: Small
    end: Ints  # since the middle of all ends, so that a float holds it to the nanosecond
    edges: Ints

    def widen(self) -> Floats:
        """How much farther apart two ranks are than each is from their middle, by anchor."""
        size = np.diff(self.edges)
        factor: Floats = np.repeat(size / np.maximum(size - 1, 1), size)
        return factor


def _joined(members: _Ends, middle: int) -> _Joined:
    counts = np.frombuffer(members.counts, np.int64)
    rank = np.repeat(np.frombuffer(members.ranks, np.int64).astype(np.int32), counts)
    key = np.frombuffer(members.keys, np.int64)
    order = np.lexsort((rank, key)).astype(np.int32)
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    size = np.diff(np.append(starts, len(order)))
    order = order[np.repeat(size > 1, size)]  # ends that nobody else has fix nothing
    end = np.frombuffer(members.ends, np.int64)[order] - middle
    return _Joined(rank[order], end, np.append(0, np.cumsum(size[size > 1])))


@dataclass(frozen=True, eq=False)
class _Rows:
    """Each rank's anchors in the groups laid end to end."""

    at: Small  # rank after rank
    edges: Ints  # of the ranks in it
    end: Ints  # of the anchors, groups laid end to end

    def each(self) -> Iterator[tuple[int, Small]]:
        """Ranks that have anchors, with the positions of these."""
        edges = self.edges.tolist()
        for rank, (low, high) in enumerate(pairwise(edges)):
            if high > low:
                yield rank, self.at[low:high]


def _by_rank(groups: list[_Joined], n: int) -> _Rows:
    nothing = np.zeros(0, np.int32)
    rank = np.concatenate([nothing, *(g.rank for g in groups)])
    end = np.concatenate([np.zeros(0, np.int64), *(g.end for g in groups)])
    rows = np.argsort(rank, kind="stable").astype(np.int32)
    edges = np.append(0, np.cumsum(np.bincount(rank, minlength=n)))
    return _Rows(rows, edges, end)


def _first_offsets(groups: list[_Joined], n: int) -> tuple[Floats, Mask]:
    """Offsets from group to group, beginning at the first rank of each connected part.

    Only the part with most ranks counts as aligned: the others share no collective with it.
    """
    offset, part = np.zeros(n), np.full(n, -1)
    waiting = sorted(groups, key=lambda g: -len(g.rank))
    parts = 0
    while waiting:
        part[waiting[0].rank.min()] = parts
        parts += 1
        reached = True
        while reached:
            reached = False
            for group in waiting:
                if (part[group.rank] >= 0).any():
                    reached |= _extend(group, offset, part)
            waiting = [g for g in waiting if (part[g.rank] < 0).any()]
    if not parts:
        return offset, np.zeros(n, np.bool_)
    sizes = np.bincount(part[part >= 0], minlength=parts)
    return offset, part == int(np.argmax(sizes))


def _extend(group: _Joined, offset: Floats, part: Ints) -> bool:
    """Give the group's new ranks the offset that fits those it already has; whether any got one."""
    fixed = part[group.rank] >= 0
    on_common = np.where(fixed, group.end - offset[group.rank], 0)
    count = np.add.reduceat(fixed.astype(np.int64), group.edges[:-1])
    common = np.add.reduceat(on_common, group.edges[:-1]) / np.maximum(count, 1)
    which = np.repeat(np.arange(len(count)), np.diff(group.edges))
    rows = np.flatnonzero(~fixed & (count > 0)[which])
    if not len(rows):
        return False
    rows = rows[np.argsort(group.rank[rows], kind="stable")]
    same_part = int(part[group.rank[fixed]].max())
    starts = np.flatnonzero(np.diff(group.rank[rows], prepend=-1))
    for piece in np.split(rows, starts[1:]):
        rank = group.rank[piece[0]]
        offset[rank] = float(np.median(group.end[piece] - common[which[piece]]))
        part[rank] = same_part
    return True


def _residuals(groups: list[_Joined], offset: Floats, drift: Floats) -> Floats:
    """By how much each anchor's end comes later than the common one, groups laid end to end."""
    out = [np.zeros(0)]
    for g in groups:
        at = g.end * (1 - drift[g.rank]) - offset[g.rank]
        size = np.diff(g.edges)
        which = np.repeat(np.arange(len(size), dtype=np.int32), size)
        order = np.lexsort((at, which))
        low, high = g.edges[:-1] + (size - 1) // 2, g.edges[:-1] + size // 2
        common = (at[order[low]] + at[order[high]]) / 2
        out.append(at - common[which])
    return np.concatenate(out)


def _slope(left: Floats, times: Ints) -> float:
    """Drift from the first and the last third of the residuals; 0 where it is within noise."""
    n = len(left)
    if n < FEWEST_FOR_DRIFT:
        return 0.0
    order = np.argsort(times, kind="stable")
    third = n // 3
    early, late = order[:third], order[-third:]
    span = float(np.median(times[late]) - np.median(times[early]))
    rise = float(np.median(left[late]) - np.median(left[early]))
    scatter = float(np.median(np.abs(left[early] - np.median(left[early]))))
    if span <= 0 or abs(rise) < SURE_RATIO * scatter / np.sqrt(third):
        return 0.0
    slope = rise / span
    return slope if abs(slope) < MOST_DRIFT else 0.0
