"""The reduce: from the summaries of all ranks to one answer about the job.

Summaries are read one at a time, nine times over. What stays in memory is bounded but for a row of
numbers a rank and a few numbers a distinct collective: docs/explanation/ranks.md has it measured.
"""

from collections import defaultdict
from dataclasses import field

import numpy as np

from pinchpoint.analysis.ranks.buckets import Buckets, buckets
from pinchpoint.analysis.ranks.clocks import Anchors, Clocks, align, anchors_a_rank
from pinchpoint.analysis.ranks.communication import Communication, communication
from pinchpoint.analysis.ranks.late_causes import LateCause, late_causes
from pinchpoint.analysis.ranks.matching import (
    STEP_SHIFT,
    GroupCalls,
    GroupName,
    Matching,
    Source,
    by_group,
    one_end,
    renumbered,
    step_shifts,
)
from pinchpoint.analysis.ranks.one_piece import OnePiece, one_piece
from pinchpoint.analysis.ranks.own_time import (
    FactsOf,
    JobFacts,
    complete_steps,
    without_host_waiting,
)
from pinchpoint.analysis.ranks.rendezvous import marks, replayed_steps
from pinchpoint.analysis.ranks.stragglers import Excess, Lateness, excess, lateness
from pinchpoint.analysis.ranks.summary import RankSummary, unpack
from pinchpoint.analysis.ranks.timed import timed_step_ns
from pinchpoint.analysis.ranks.turns import Turns, turns
from pinchpoint.analysis.ranks.waits import NOBODY, Rendezvous, gather
from pinchpoint.analysis.ranks.what_if import JobReplay, own_of_hosts, replay
from pinchpoint.analysis.statistics import mean, median_of_ranks
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Floats, Ints

# ------------------------------------------------------------------------------------------------
# Collectives that some ranks of a group did not call, or called with something else.
#
# A group whose ranks do not call the same collectives in the same order hangs, or computes
# nonsense.


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
class MissingRank:
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


def mismatches(missing: MissingRank, matching: Matching, found: Rendezvous) -> tuple[Mismatch, ...]:
    """What does not fit, in order; the first of each group is where it began."""
    out = []
    names = {number: key for key, number in found.kinds.known.items()}
    for (group, key), ranks in missing.found.items():
        peers = found.groups[group]
        at = int(np.searchsorted(peers.keys, key))
        if one_end(names[int(peers.kind[at])][1]):
            continue
        call = _call(names[int(peers.kind[at])])
        out.append(_mismatch("missing", matching, group, key, call, None, ranks))
    for group, peers in found.groups.items():
        for at in np.flatnonzero(peers.odd != NOBODY).tolist():
            usual, odd = names[int(peers.kind[at])], names[int(peers.odd_kind[at])]
            if one_end(usual[1]) or one_end(odd[1]):  # one rank sends what another one receives
                continue
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


# ------------------------------------------------------------------------------------------------
# The reduce: from the summaries of all ranks to one answer about the job.


@dataclass(frozen=True)
class LateRank:
    """What one rank (its position) did in the steps in which it held up the others."""

    rank: int
    doing: tuple[LateCause, ...]


@dataclass(frozen=True, eq=False)
class Job:
    """Everything that is known about the ranks together."""

    facts: JobFacts
    clocks: Clocks
    matching: Matching
    found: Rendezvous
    matched_by: tuple[str, ...]  # in words, distinct
    between: Communication
    over: Excess
    late: Lateness
    late_ranks: tuple[LateRank, ...]  # stragglers; or, where they change, those of the incidents
    buckets: tuple[Buckets, ...]
    mismatches: tuple[Mismatch, ...]
    replay: JobReplay | None
    of_hosts: JobReplay | None  # the same of ranks without devices, from when their threads rested
    step_shifts: Ints  # what the numbers of the steps are beyond each rank's own; empty: nothing
    turns: tuple[Turns, ...] = ()  # of ranks that send each other pieces of a step
    one_piece: OnePiece | None = None  # of two ranks that send each other all of it

    @property
    def step_ns(self) -> float:
        """Mean step of the job, as recorded: the median over the ranks of each step."""
        return mean(median_of_ranks(self.facts.window_ns))

    @property
    def met(self) -> bool:
        """Whether any collective of one rank could be matched with one of another."""
        return int((self.over.peer_of >= 0).sum()) > 1

    @property
    def timed_ns(self) -> float | None:
        """Mean step as most ranks timed it beside their recordings: those without devices, and
        those whose steps come in bursts."""
        return timed_step_ns(self.facts)

    @property
    def base_ns(self) -> int:
        """The step without recording cost: by the replay, as ranks timed it, or as their own
        estimates say."""
        if self.replay is not None:
            return self.replay.base_ns
        if (timed := self.timed_ns) is not None:
            return round(timed)
        typical = [
            (r.corrected_step_ns, r.typical_step_ns)
            for r in self.facts.ranks
            if r.corrected_step_ns and r.typical_step_ns and r.device
        ]
        ratios = [min(corrected / step, 1.0) for corrected, step in typical]
        return round(self.step_ns * (float(np.median(ratios)) if ratios else 1.0))

    @property
    def said_ratio(self) -> float:
        """What is said of a time that was recorded: where ranks timed their steps, by those."""
        if self.timed_ns is None or not self.step_ns:
            return 1.0
        return self.base_ns / self.step_ns

    def peers(self, rank: int) -> Ints:
        """Positions of the ranks that a rank is compared with, without itself."""
        same = (self.over.peer_of == self.over.peer_of[rank]) & self.facts.usable
        same[rank] = False
        return np.flatnonzero(same)


def reduce(source: Source) -> Job:
    """The job. ``source`` gives every rank once, in order, each time it is called."""
    matching, marked = Matching(), True
    for summary in source():
        matching.look_at(summary)
        marked &= summary.steps.how == "marker"
    shifts = np.zeros(0, np.int64) if marked else step_shifts(source, matching)
    source, facts_of = renumbered(source, shifts), FactsOf()
    for summary in source():
        facts_of.look_at(summary)
    for summary in source():
        facts_of.add(summary)
    facts = facts_of.done()
    anchors = Anchors(anchors_a_rank(len(facts.ranks)))
    for summary in source():
        anchors.add(summary, matching)
    clocks = align(anchors)
    del anchors
    found = gather(source, matching, clocks)
    between = communication(source, facts, matching, found)
    facts = without_host_waiting(facts, between.late_ns)
    over = excess(facts, between)
    late = lateness(facts, over)
    late_ranks, missing = _look_again(source, facts, over, late, matching, found)
    replayed = _replay(source, facts, over, matching, clocks, found, late)
    on_devices = any(rank.device for rank in facts.ranks)
    return Job(
        facts=facts,
        clocks=clocks,
        matching=matching,
        found=found,
        matched_by=tuple(dict.fromkeys(matching.how(g) for g in found.groups)),
        between=between,
        over=over,
        late=late,
        late_ranks=late_ranks,
        buckets=buckets(between.kinds),
        mismatches=mismatches(missing, matching, found),
        replay=replayed if on_devices else None,
        of_hosts=None if on_devices else replayed,
        step_shifts=shifts,
        turns=turns(source, clocks),
        one_piece=one_piece(source),
    )


def _look_again(
    source: Source,
    facts: JobFacts,
    over: Excess,
    late: Lateness,
    matching: Matching,
    found: Rendezvous,
) -> tuple[tuple[LateRank, ...], MissingRank]:
    """What late ranks did in the steps in which they were late, and what ranks did not call."""
    wanted = {s.rank: list(s.late) for s in late.stragglers}
    if not wanted:
        for incident in late.incidents:
            wanted.setdefault(incident.rank, []).append(incident.step)
    explained, missing = {}, MissingRank()
    for rank, summary in enumerate(source()):
        missing.look_at(rank, summary, matching, found)
        if rank in wanted:
            same = (over.peer_of == over.peer_of[rank]) & facts.usable
            same[rank] = False
            parts = _parts_in(summary, facts, facts.step_numbers[wanted[rank]])
            always = len(late.stragglers) > 0
            did = late_causes(facts, rank, summary, parts, np.flatnonzero(same), always=always)
            explained[rank] = LateRank(rank, did)
    return tuple(explained[rank] for rank in wanted if rank in explained), missing


def _parts_in(summary: RankSummary, facts: JobFacts, numbers: Ints) -> Floats:
    """The rank's parts, mean of some steps, in the job's order of parts."""
    rows = np.isin(unpack(summary.steps.number), numbers)
    ns_of = summary.parts_by_step()[rows].mean(axis=0).tolist()
    mine = {p.id: ns for p, ns in zip(summary.parts, ns_of, strict=True)}
    return np.array([mine.get(p.id, 0.0) for p in facts.parts])


def _replay(
    source: Source,
    facts: JobFacts,
    over: Excess,
    matching: Matching,
    clocks: Clocks,
    found: Rendezvous,
    late: Lateness,
) -> JobReplay | None:
    if int((over.peer_of >= 0).sum()) < 2:  # nobody is known to have met anybody
        return None
    chosen = replayed_steps(facts, found, [i.step for i in late.incidents])
    if chosen is None:
        return None
    recorded = marks(source, facts, matching, clocks, found, chosen)
    if recorded is None:
        return None
    if not any(rank.device for rank in facts.ranks):
        facts = own_of_hosts(facts, recorded, chosen)
    return replay(facts, over, recorded, chosen)
