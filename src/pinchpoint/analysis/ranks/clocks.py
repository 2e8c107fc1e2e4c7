"""One time for all ranks, from the collectives that they leave together.

Recordings carry the clock of their machine. Clocks of machines differ by milliseconds and drift
apart by some parts in a million; device clocks are converted by each driver on its own. But no rank
can leave an all-reduce before the last one has entered it, and all leave within microseconds. So a
rank's offset is what makes its ends agree with the median end over all ranks. What is left over
is the uncertainty.
"""

from array import array
from collections import defaultdict
from dataclasses import dataclass, field

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

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ANCHORS = 64  # collectives of a group that fix a rank's clock
MOST_ANCHORS = 200_000  # of one group: about 100 bytes each while clocks are aligned
FEWEST_ANCHORS = 24  # of a rank: half of them are left at worst, enough to tell a drift
ROUNDS = 3
FEWEST_FOR_DRIFT = 12
SURE_RATIO = 3.0  # a drift must move the ends by this many times what they scatter


@dataclass(frozen=True, eq=False)
class Clocks:
    """How each rank's clock differs from the first one's; arrays of one element a rank."""

    aligned: NDArray[np.bool_]
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
    """Offset and drift of every rank that shares collectives with others."""
    shared = [members for members in anchors.by_group.values() if len(members.ranks) > 1]
    ends = [np.frombuffer(members.ends, np.int64) for members in shared]
    middle = int(np.median(np.concatenate(ends))) if ends else 0
    groups = [g for g in (_joined(members, middle) for members in shared) if len(g.rank)]
    n = anchors.ranks
    offset, aligned = _first_offsets(groups, n)
    drift, spread = np.zeros(n), np.full(n, np.nan)
    mine = _by_rank(groups, n)
    for turn in range(ROUNDS):
        residual = _residuals(groups, offset, drift)
        for rank, rows in mine.items():
            offset[rank] += float(np.median(residual[rows.at]))
            if turn == ROUNDS - 1:
                drift[rank] = _slope(residual[rows.at], rows.end)
    first = int(np.argmax(aligned)) if aligned.any() else 0
    too_much = np.abs(drift - drift[first]) > MOST_DRIFT  # of two ranks each has half of it
    drift[too_much] = drift[first]
    wide = np.concatenate([g.widen for g in groups]) if groups else np.zeros(0)
    left = np.abs(_residuals(groups, offset, drift)) * wide
    for rank, rows in mine.items():
        spread[rank] = float(np.median(left[rows.at]))
    offset, drift = offset - offset[first], drift - drift[first]
    count = np.array([len(mine[r].at) if r in mine else 0 for r in range(n)], np.int64)
    return Clocks(aligned, np.rint(offset).astype(np.int64), drift, spread, count, middle)


@dataclass(frozen=True, eq=False)
class _Joined:
    """All anchors of a group, sorted by key; ``edges`` bound the same key."""

    rank: Ints
    end: Ints  # since the middle of all ends, so that a float holds it to the nanosecond
    edges: Ints
    widen: Floats  # how much farther apart two ranks are than each is from their middle


def _joined(members: _Ends, middle: int) -> _Joined:
    rank = np.repeat(
        np.frombuffer(members.ranks, np.int64), np.frombuffer(members.counts, np.int64)
    )
    key = np.frombuffer(members.keys, np.int64)
    end = np.frombuffer(members.ends, np.int64) - middle
    order = np.lexsort((rank, key))
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    edges = np.append(starts, len(order))
    size = np.diff(edges)
    shared = np.repeat(size > 1, size)  # ends that nobody else has fix nothing
    order, size = order[shared], size[size > 1]
    widen = np.repeat(size / np.maximum(size - 1, 1), size)
    return _Joined(rank[order], end[order], np.append(0, np.cumsum(size)), widen)


@dataclass(frozen=True, eq=False)
class _Rows:
    """One rank's anchors in the groups laid end to end."""

    at: Ints
    end: Ints


def _by_rank(groups: list[_Joined], n: int) -> dict[int, _Rows]:
    if not groups:
        return {}
    rank = np.concatenate([g.rank for g in groups])
    end = np.concatenate([g.end for g in groups])
    rows = np.argsort(rank, kind="stable").astype(np.int64)
    edges = np.searchsorted(rank[rows], np.arange(n + 1))
    pieces = ((r, rows[edges[r] : edges[r + 1]]) for r in range(n))
    return {r: _Rows(at, end[at]) for r, at in pieces if len(at)}


def _first_offsets(groups: list[_Joined], n: int) -> tuple[Floats, NDArray[np.bool_]]:
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
        which = np.repeat(np.arange(len(size)), size)
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
