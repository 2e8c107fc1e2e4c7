"""Collectives that some ranks of a group did not call, or called with something else.

A group whose ranks do not call the same collectives in the same order hangs, or computes nonsense.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from pinchpoint.analysis.ranks.facts import complete_steps
from pinchpoint.analysis.ranks.matching import STEP_SHIFT, GroupCalls, GroupName, Matching, by_group
from pinchpoint.analysis.ranks.summary import RankSummary, unpack
from pinchpoint.analysis.ranks.waits import NOBODY, Rendezvous
from pinchpoint.trace.arrays import Ints

MOST_LISTED = 32  # one misplaced call makes all later ones differ
MOST_RANKS = 8  # named in one entry
# Every rank gives its own share to these, so sizes may differ.
_UNEVEN = ("alltoall", "allgather", "gather", "scatter", "other")


@dataclass(frozen=True)
class Mismatch:
    """One collective on which the ranks of a group do not agree."""

    what: str  # missing, different
    group: str
    call: str  # what the others called
    instead: str | None  # what the odd rank called
    step: int | None  # number of the step; None where matched without one
    place: int  # position in the step, or the sequence number
    ranks: tuple[int, ...]  # positions of ranks that miss it or differ, some of them
    count: int  # how many of them


@dataclass
class Missing:
    """Gathers what each rank misses; one rank at a time, after all calls are known."""

    found: dict[tuple[GroupName, int], list[int]] = field(default_factory=lambda: defaultdict(list))

    def look_at(
        self, rank: int, summary: RankSummary, matching: Matching, everything: Rendezvous
    ) -> None:
        """Calls of the rank's groups between its first one and its end that it did not make."""
        if summary.calls.stride > 1 or summary.truncated:
            return
        for calls in by_group(summary):
            keys = matching.keys(summary, calls)
            if keys is None or not len(keys) or calls.group not in everything.groups:
                continue
            peers = everything.groups[calls.group].keys
            first, last = int(keys.min()), _until(summary, matching, calls, keys)
            inside = peers[(peers >= first) & (peers <= last)]
            for key in np.setdiff1d(inside, keys).tolist():
                self.found[(calls.group, key)].append(rank)


def _until(summary: RankSummary, matching: Matching, calls: GroupCalls, keys: Ints) -> int:
    """The last key that the rank should have: to the end of its last complete step."""
    complete = unpack(summary.steps.number)[complete_steps(summary)]
    if matching.how(calls.group) != "step numbers and order" or not len(complete):
        return int(keys.max())
    return max(((int(complete[-1]) + 1) << STEP_SHIFT) - 1, int(keys.max()))


def mismatches(missing: Missing, matching: Matching, found: Rendezvous) -> tuple[Mismatch, ...]:
    """What does not fit, in order; the first of each group is where it began."""
    out = []
    names = {number: key for key, number in found.kinds.known.items()}
    for (group, key), ranks in missing.found.items():
        peers = found.groups[group]
        at = int(np.searchsorted(peers.keys, key))
        call = _call(names[int(peers.kind[at])])
        out.append(_mismatch("missing", matching, group, key, call, None, ranks))
    for group, peers in found.groups.items():
        for at in np.flatnonzero(peers.odd != NOBODY).tolist():
            usual, odd = names[int(peers.kind[at])], names[int(peers.odd_kind[at])]
            if usual[1] == odd[1] and (usual[1] in _UNEVEN or usual[2] == odd[2]):
                continue
            ranks = [int(peers.odd[at])]
            out.append(
                _mismatch(
                    "different",
                    matching,
                    group,
                    int(peers.keys[at]),
                    _call(usual),
                    _call(odd),
                    ranks,
                )
            )
    out.sort(key=lambda m: (m.step or 0, m.place, m.group))
    return tuple(out[:MOST_LISTED])


def _mismatch(
    what: str,
    matching: Matching,
    group: GroupName,
    key: int,
    call: str,
    instead: str | None,
    ranks: list[int],
) -> Mismatch:
    by_step = matching.how(group) == "step numbers and order"
    return Mismatch(
        what=what,
        group=group.description or group.name,
        call=call,
        instead=instead,
        step=key >> STEP_SHIFT if by_step else None,
        place=key & ((1 << STEP_SHIFT) - 1) if by_step else key,
        ranks=tuple(ranks[:MOST_RANKS]),
        count=len(ranks),
    )


def _call(kind: tuple[GroupName, str, int | None, str | None]) -> str:
    _, verb, size, dtype = kind
    return " ".join(str(part) for part in (verb, size and f"{size} bytes", dtype) if part)
