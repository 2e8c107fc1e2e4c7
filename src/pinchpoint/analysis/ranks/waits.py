"""Each collective split into waiting for the last rank and transfer.

All ranks leave a synchronising collective together, so the one that spends least time in it came
last: the shortest duration is the transfer, and what a rank spends beyond it is waiting. This
needs no clock. Where only the end of a collective is exposed (the rank still computed when it
began), the exposed part is taken from its end: transfer is exposed before waiting is.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field, fields

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.ranks.clocks import Clocks
from pinchpoint.analysis.ranks.matching import (
    GroupCalls,
    GroupName,
    Matching,
    Source,
    by_group,
    meets,
    one_end,
)
from pinchpoint.analysis.ranks.summary import CallKind, RankSummary, unpack, unpack_small
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Ints, Mask

Small = NDArray[np.int32]

NOBODY = -1  # no rank's number
UNNAMED = "other"  # a kernel that is the same for all kinds of collectives
_FAR = np.int64(1) << 62  # beyond any time, and sums of two still fit


@dataclass
class GroupCollectives:
    """The collectives of one group over all its ranks; arrays of one element each, by key.

    Times and keys have 64 bits, the rest 32: 44 bytes a collective.
    """

    keys: Ints
    kind: Small  # position in ``kinds`` of the whole job
    ranks: Small  # how many took part
    shortest_ns: Ints
    last: Small  # position of the rank that came last
    end_ns: Ints  # latest end on the common clock
    odd: Small  # position of a rank that did something else here; NOBODY where all did the same
    odd_kind: Small  # what it did


@dataclass
class KindTable:
    """Kinds of collectives as all ranks see them, numbered."""

    known: dict[tuple[GroupName, str, int | None, str | None], int] = field(default_factory=dict)
    kernel: list[str] = field(default_factory=list)

    def number(self, group: GroupName, kind: CallKind) -> int:
        """The number of a kind of call in a group."""
        key = (group, kind.kind, kind.bytes, kind.dtype)
        if key not in self.known:
            self.known[key] = len(self.known)
            self.kernel.append(kind.kernel)
        return self.known[key]


@dataclass
class Rendezvous:
    """All groups' collectives, gathered one rank at a time."""

    groups: dict[GroupName, GroupCollectives] = field(default_factory=dict)
    members: "dict[GroupName, array[int]]" = field(
        default_factory=lambda: defaultdict(lambda: array("i"))
    )
    kinds: KindTable = field(default_factory=KindTable)

    def add(self, rank: int, summary: RankSummary, matching: Matching, clocks: Clocks) -> None:
        """One rank (its position)."""
        duration = unpack(summary.calls.duration_ns)
        end = unpack(summary.calls.start_ns) + duration
        common = clocks.common(rank, end) if clocks.aligned[rank] else None
        for calls in by_group(summary):
            keys = matching.keys(summary, calls)
            if keys is None:
                continue
            self.members[calls.group].append(rank)
            distinct, which = np.unique(calls.kind, return_inverse=True)
            kinds = (summary.call_kinds[k] for k in distinct.tolist())
            kind = np.array([self.kinds.number(calls.group, k) for k in kinds], np.int32)[which]
            ends = np.full(len(keys), -_FAR) if common is None else common[calls.at]
            fresh = _sorted(rank, keys, kind, duration[calls.at], ends)
            known = self.groups.get(calls.group)
            self.groups[calls.group] = fresh if known is None else _merged(known, fresh)


def gather(source: Source, matching: Matching, clocks: Clocks) -> Rendezvous:
    """Every collective of the job with its last rank."""
    found = Rendezvous()
    for rank, summary in enumerate(source()):
        found.add(rank, summary, matching, clocks)
    return found


def _sorted(rank: int, keys: Ints, kind: Small, duration: Ints, ends: Ints) -> GroupCollectives:
    order = np.argsort(keys, kind="stable")
    keys, kind, duration, ends = keys[order], kind[order], duration[order], ends[order]
    first = np.diff(keys, prepend=-1) != 0  # a damaged file may repeat a number
    keys, kind, duration, ends = keys[first], kind[first], duration[first], ends[first]
    n = len(keys)
    return GroupCollectives(
        keys,
        kind,
        np.ones(n, np.int32),
        duration,
        np.full(n, rank, np.int32),
        ends,
        np.full(n, NOBODY, np.int32),
        kind.copy(),
    )


def _merged(known: GroupCollectives, fresh: GroupCollectives) -> GroupCollectives:
    """Both together; ``fresh`` is one rank."""
    new = ~np.isin(fresh.keys, known.keys, assume_unique=True)
    if new.any():
        known = _joined(known, fresh, new)
    at = np.searchsorted(known.keys, fresh.keys[~new])
    mine = {name: getattr(fresh, name)[~new] for name in _COLUMNS}
    earlier = mine["shortest_ns"] < known.shortest_ns[at]
    known.last[at] = np.where(earlier, mine["last"], known.last[at])
    known.shortest_ns[at] = np.minimum(known.shortest_ns[at], mine["shortest_ns"])
    known.end_ns[at] = np.maximum(known.end_ns[at], mine["end_ns"])
    known.ranks[at] += 1
    differs = (mine["kind"] != known.kind[at]) & (known.odd[at] == NOBODY)
    known.odd[at] = np.where(differs, mine["last"], known.odd[at])
    known.odd_kind[at] = np.where(differs, mine["kind"], known.odd_kind[at])
    return known


_COLUMNS = tuple(f.name for f in fields(GroupCollectives))


def _joined(known: GroupCollectives, fresh: GroupCollectives, new: Mask) -> GroupCollectives:
    columns = [np.concatenate((getattr(known, c), getattr(fresh, c)[new])) for c in _COLUMNS]
    order = np.argsort(columns[0], kind="stable")
    return GroupCollectives(*(c[order] for c in columns))


@dataclass(frozen=True, eq=False)
class Split:
    """One rank's calls of one group beside those of its peers; arrays of one length."""

    calls: GroupCalls
    at: Ints  # position in the group's occurrences
    step: Ints  # position in the rank's steps
    duration_ns: Ints
    waiting_ns: Ints  # for the last rank
    exposed_waiting_ns: Ints
    exposed_transfer_ns: Ints
    was_last: Mask
    told: Mask  # whether the recordings can say how much of it was waiting


def split(
    rank: int, summary: RankSummary, matching: Matching, found: Rendezvous
) -> Iterator[Split]:
    """One rank's collectives, a group at a time."""
    duration, exposed = unpack(summary.calls.duration_ns), unpack(summary.calls.exposed_ns)
    step = unpack_small(summary.calls.step)
    together = np.array([meets(k.kind) for k in summary.call_kinds], np.bool_)
    named = np.array(
        [k.kind != UNNAMED and not one_end(k.kind) for k in summary.call_kinds], np.bool_
    )
    for calls in by_group(summary):
        keys = matching.keys(summary, calls)
        if keys is None or calls.group not in found.groups:
            continue
        peers = found.groups[calls.group]
        at = np.searchsorted(peers.keys, keys)
        mine, alone = duration[calls.at], exposed[calls.at]
        # Alone in it, as far as is known: nothing says how much was waiting.
        judged = together[calls.kind] & (peers.ranks[at] > 1)
        waiting = np.where(judged, mine - peers.shortest_ns[at], 0)
        exposed_waiting = np.maximum(alone + waiting - mine, 0)
        yield Split(
            calls,
            at,
            step[calls.at],
            mine,
            waiting,
            exposed_waiting,
            alone - exposed_waiting,
            judged & (peers.last[at] == rank),
            named[calls.kind] & (peers.ranks[at] > 1),
        )
