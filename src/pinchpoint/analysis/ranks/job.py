"""The reduce: from the summaries of all ranks to one answer about the job.

Summaries are read one at a time, eight times over. What stays in memory is bounded but for a row of
numbers a rank and a few numbers a distinct collective: docs/explanation/ranks.md has it measured.
"""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.ranks.clocks import Anchors, Clocks, align, anchors_a_rank
from pinchpoint.analysis.ranks.communication import Communication, communication
from pinchpoint.analysis.ranks.doings import Doing, doings
from pinchpoint.analysis.ranks.facts import Facts, FactsOf, without_host_waiting
from pinchpoint.analysis.ranks.known import mean, median_of_ranks
from pinchpoint.analysis.ranks.links import Buckets, buckets
from pinchpoint.analysis.ranks.marks import marks, replayed_steps
from pinchpoint.analysis.ranks.matching import Matching, Source
from pinchpoint.analysis.ranks.mismatches import Mismatch, Missing, mismatches
from pinchpoint.analysis.ranks.numbering import renumbered, step_shifts
from pinchpoint.analysis.ranks.stragglers import Excess, Lateness, excess, lateness
from pinchpoint.analysis.ranks.summary import RankSummary, unpack
from pinchpoint.analysis.ranks.waits import Rendezvous, gather
from pinchpoint.analysis.ranks.what_if import Replay, replay
from pinchpoint.trace.arrays import Floats, Ints


@dataclass(frozen=True)
class LateRank:
    """What one rank (its position) did in the steps in which it held up the others."""

    rank: int
    doing: tuple[Doing, ...]


@dataclass(frozen=True, eq=False)
class Job:
    """Everything that is known about the ranks together."""

    facts: Facts
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
    replay: Replay | None
    step_shifts: Ints  # what the numbers of the steps are beyond each rank's own; empty: nothing

    @property
    def step_ns(self) -> float:
        """Mean step of the job, as recorded: the median over the ranks of each step."""
        return mean(median_of_ranks(self.facts.window_ns))

    @property
    def met(self) -> bool:
        """Whether any collective of one rank could be matched with one of another."""
        return int((self.over.peer_of >= 0).sum()) > 1

    @property
    def base_ns(self) -> int:
        """The step without recording cost: by the replay, or as the ranks' own estimates say."""
        if self.replay is not None:
            return self.replay.base_ns
        typical = [
            (r.corrected_step_ns, r.typical_step_ns)
            for r in self.facts.ranks
            if r.corrected_step_ns and r.typical_step_ns and r.device
        ]
        ratios = [min(corrected / step, 1.0) for corrected, step in typical]
        return round(self.step_ns * (float(np.median(ratios)) if ratios else 1.0))

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
        replay=_replay(source, facts, over, matching, clocks, found, late),
        step_shifts=shifts,
    )


def _look_again(
    source: Source,
    facts: Facts,
    over: Excess,
    late: Lateness,
    matching: Matching,
    found: Rendezvous,
) -> tuple[tuple[LateRank, ...], Missing]:
    """What late ranks did in the steps in which they were late, and what ranks did not call."""
    wanted = {s.rank: list(s.late) for s in late.stragglers}
    if not wanted:
        for incident in late.incidents:
            wanted.setdefault(incident.rank, []).append(incident.step)
    explained, missing = {}, Missing()
    for rank, summary in enumerate(source()):
        missing.look_at(rank, summary, matching, found)
        if rank in wanted:
            same = (over.peer_of == over.peer_of[rank]) & facts.usable
            same[rank] = False
            parts = _parts_in(summary, facts, facts.step_numbers[wanted[rank]])
            did = doings(facts, rank, summary, parts, np.flatnonzero(same))
            explained[rank] = LateRank(rank, did)
    return tuple(explained[rank] for rank in wanted if rank in explained), missing


def _parts_in(summary: RankSummary, facts: Facts, numbers: Ints) -> Floats:
    """The rank's parts, mean of some steps, in the job's order of parts."""
    rows = np.isin(unpack(summary.steps.number), numbers)
    ns_of = summary.parts_by_step()[rows].mean(axis=0).tolist()
    mine = {p.id: ns for p, ns in zip(summary.parts, ns_of, strict=True)}
    return np.array([mine.get(p.id, 0.0) for p in facts.parts])


def _replay(
    source: Source,
    facts: Facts,
    over: Excess,
    matching: Matching,
    clocks: Clocks,
    found: Rendezvous,
    late: Lateness,
) -> Replay | None:
    if int((over.peer_of >= 0).sum()) < 2:  # nobody is known to have met anybody
        return None
    chosen = replayed_steps(facts, found, [i.step for i in late.incidents])
    if chosen is None:
        return None
    recorded = marks(source, facts, matching, clocks, found, chosen)
    return None if recorded is None else replay(facts, over, recorded, chosen)
