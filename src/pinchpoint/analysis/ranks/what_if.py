"""What the job's step would be: without its stragglers, with a faster link, with overlap."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from pinchpoint.analysis.ranks.own_time import JobFacts
from pinchpoint.analysis.ranks.rendezvous import NO_STEP, Marks
from pinchpoint.analysis.ranks.stragglers import Excess
from pinchpoint.analysis.ranks.timed import timed_step_ns
from pinchpoint.analysis.statistics import (
    lower_median_of_ranks,
    mean,
    mean_of_ranks,
    median_of_ranks,
)
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Floats, Ints

# ------------------------------------------------------------------------------------------------
# What would the job's step be if a rank were faster, the link were, or transfers were hidden?
#
# Simulated is what the marks leave open: a collective ends when its last rank has arrived and the
# transfer is done, and who needs the result waits until then. The steps are run through twice,
# and the second time counts.


PASSES = 2  # one from the recorded state, to settle, and one that counts
LIKE_ITSELF = -1  # no rank's number


@dataclass(frozen=True, eq=False)
class JobChange:
    """What is different. None: as recorded."""

    length_ns: Floats | None = None  # (ranks, steps): the ranks' own progress
    like: Ints | None = None  # (ranks, steps): rank whose course a rank follows; LIKE_ITSELF
    transfer_factor: Floats | None = None  # (sync points,)
    host_ns: Floats | None = None  # (ranks,): what the host of each needs to issue all steps
    hidden: bool = False  # nobody waits for a transfer as long as the next may start


def step_ns(recorded: Marks, change: JobChange | None = None) -> float:
    """Mean period of the replayed steps on the slowest rank, once the job has settled.

    A host runs ahead of its device, so that a step in which it is slow costs nothing by itself; but
    no rank is faster than its host in all steps together.
    """
    change = change or JobChange()
    run = _Run(recorded, change)
    for number in range(PASSES):
        run.once(number)
    took = float(np.nanmax(run.last_ns - run.before_ns))
    if change.host_ns is not None:
        took = max(took, float(change.host_ns.max(initial=0.0)))
    return took / recorded.steps


def _follow(
    recorded: Marks,
    like: Ints,
    length: Floats,
    before: Floats,
    progress: Floats,
    needed: Floats,
) -> None:
    """Give marks of some ranks and steps the places that they have on another rank, and the needs.

    Where the other rank has more or fewer marks in the step, the rank keeps its own course.
    """
    steps = recorded.steps
    cells = recorded.rank * steps + recorded.step
    edges = np.searchsorted(cells[recorded.by_rank], np.arange(len(like) * steps + 1))
    for rank, step in zip(*np.nonzero(like != LIKE_ITSELF), strict=True):
        other = int(like[rank, step])
        mine, theirs = rank * steps + step, other * steps + step
        rows = recorded.by_rank[edges[mine] : edges[mine + 1]]
        model = recorded.by_rank[edges[theirs] : edges[theirs + 1]]
        whole = recorded.length_ns[other, step]
        if len(rows) == len(model) and whole > 0:
            scale = length[rank, step] / whole
            progress[rows] = (recorded.progress_ns[model] - before[other, step]) * scale
            # Where the other one needs no result, nobody waits.
            theirs_ns = (recorded.needed_ns[model] - before[other, step]) * scale
            needed[rows] = np.where(np.isnan(theirs_ns), np.inf, theirs_ns)


class _Run:
    """One simulation: the state of every rank while it goes through the sync points."""

    def __init__(self, recorded: Marks, change: JobChange) -> None:
        self.recorded, self.hidden = recorded, change.hidden
        length = recorded.length_ns if change.length_ns is None else change.length_ns
        before = np.cumsum(recorded.length_ns, axis=1) - recorded.length_ns
        after = np.cumsum(length, axis=1) - length
        cell = recorded.rank, recorded.step
        scale = np.divide(
            length, recorded.length_ns, out=np.ones_like(length), where=recorded.length_ns > 0
        )
        progress = (recorded.progress_ns - before[cell]) * scale[cell]
        needed = (recorded.needed_ns - before[cell]) * scale[cell]
        if change.like is not None:
            _follow(recorded, change.like, length, before, progress, needed)
        self.arrives = after[cell] + progress
        self.needed = after[cell] + needed
        self.all_ns = length.sum(axis=1)
        self.transfer = recorded.transfer_ns
        if change.transfer_factor is not None:
            self.transfer = self.transfer * change.transfer_factor
        self.sync_point = np.repeat(np.arange(len(recorded.edges) - 1), np.diff(recorded.edges))
        self.delay = recorded.start_ns.copy()
        self.lane_end = np.full(int(recorded.lane.max(initial=0)) + 1, -np.inf)
        self.before_ns = self.last_ns = self.delay

    def once(self, number: int) -> None:
        """Go through all steps once; progress continues from the pass before."""
        marks = self.recorded
        shift = number * self.all_ns
        end = np.zeros(len(marks.edges) - 1)
        waits = np.add.reduceat(marks.high - marks.low, marks.edges[:-1]) > 0
        for sync_point, start in enumerate(marks.edges[:-1].tolist()):
            mine = slice(start, marks.edges[sync_point + 1])
            ranks = marks.rank[mine]
            if waits[sync_point] and not self.hidden:
                self._wait(mine, end, shift)
            arrival = self.arrives[mine] + shift[ranks] + self.delay[ranks]
            if marks.ends_step[sync_point] == marks.steps - 1:
                self.before_ns, self.last_ns = self.last_ns, np.full(len(shift), np.nan)
                self.last_ns[ranks] = arrival
            if marks.ends_step[sync_point] == NO_STEP:
                lanes = marks.lane[mine]
                arrival = np.maximum(arrival, self.lane_end[lanes])
                end[sync_point] = float(arrival.max()) + self.transfer[sync_point]
                self.lane_end[lanes] = end[sync_point]

    def _wait(self, mine: slice, end: Floats, shift: Floats) -> None:
        """Ranks go on no earlier than the results that they need are there."""
        low, count = self.recorded.low[mine], self.recorded.high[mine] - self.recorded.low[mine]
        first = np.cumsum(count) - count
        rows = self.recorded.results[np.repeat(low - first, count) + np.arange(count.sum())]
        ranks = self.recorded.rank[rows]
        needed = end[self.sync_point[rows]] - self.needed[rows] - shift[ranks]
        np.maximum.at(self.delay, ranks, needed)


@dataclass(frozen=True, eq=False)
class JobReplay:
    """The job's steps, ready for questions. All answers are without recording cost."""

    facts: JobFacts
    over: Excess
    marks: Marks
    chosen: slice  # of the job's steps
    recorded_ns: float  # mean of the replayed steps as recorded
    usual_ns: float  # mean of all steps as recorded; of ranks that timed their steps, of those
    identity_ns: float  # the same, replayed unchanged
    corrected_ns: float  # replayed without recording cost

    @property
    def identity_error(self) -> float:
        """Relative error of the unchanged replay."""
        return self.identity_ns / self.recorded_ns - 1 if self.recorded_ns else 0.0

    @property
    def base_ns(self) -> int:
        """The step without recording cost: the recorded one times the ratio of two replays."""
        return round(self.usual_ns * self.corrected_ns / max(self.identity_ns, 1))

    def ask(
        self,
        own: "Own | None" = None,
        *,
        transfer_factors: Mapping[int, float] | None = None,
        hidden: bool = False,
    ) -> int:
        """The step with other own times, transfers, or overlap.

        ``transfer_factors`` are by the number of the kind of collective.
        """
        factor = np.ones(len(self.marks.transfer_ns))
        for kind, of_kind in (transfer_factors or {}).items():
            factor[self.marks.kind == kind] = of_kind
        length = _length(self.facts, self.chosen, None if own is None else own.ns)
        like = None if own is None else own.like[:, self.chosen]
        host = None if own is None else np.nansum(own.host_ns[:, self.chosen], axis=1)
        found = step_ns(self.marks, JobChange(length, like, factor, host, hidden))
        return round(self.base_ns * found / max(self.corrected_ns, 1))

    @property
    def least_ns(self) -> int:
        """The step if transfers cost nothing and every rank were as fast as the fastest."""
        own = as_recorded(self.facts)
        like_it = Own(_fastest(own.ns), own.like, _fastest(own.host_ns))
        kinds = dict.fromkeys(np.unique(self.marks.kind).tolist(), 0.0)
        return min(self.ask(like_it, transfer_factors=kinds, hidden=True), self.base_ns)

    def as_peers(self, ranks: Ints) -> "Own":
        """Own times with these ranks as fast as the median of the others."""
        own = as_recorded(self.facts)
        for members in self._groups(ranks):
            late = np.intersect1d(members, ranks)
            others = np.setdiff1d(members, late)
            if len(others):
                usual = median_of_ranks(own.ns[others])
                own.level(late, usual, _typical(own.ns, others, usual))
                own.level_host(late, median_of_ranks(own.host_ns[others]))
        return own

    def balanced(self, ranks: Ints) -> "Own":
        """Own times with the work of all ranks shared out evenly, if these ranks have too much.

        The work is that of the devices. Who gets more of it takes longer only as far as its device
        has no time to spare: a rank that its host holds up stays as it was.
        """
        own = as_recorded(self.facts)
        work = self.facts.worked_ns
        for members in self._groups(ranks):
            mine = own.ns[members]
            more = mean_of_ranks(work[members]) - work[members]
            idle = np.maximum(mine - work[members], 0.0)
            level = mine + np.where(more > 0, np.maximum(more - idle, 0.0), more)
            own.ns[members] = level
            usual = mean_of_ranks(level)
            own.like[members] = np.where(
                np.isnan(level), LIKE_ITSELF, _typical(mine, members, usual)
            )
        return own

    def all_as_median(self) -> "Own":
        """Own times with no rank slower than the median of its peers in any step."""
        own = as_recorded(self.facts)
        for members in self._groups(np.arange(len(self.facts.ranks))):
            usual = lower_median_of_ranks(own.ns[members])
            own.level(members, usual, _typical(own.ns, members, usual))
            own.level_host(members, lower_median_of_ranks(own.host_ns[members]))
        return own

    def _groups(self, ranks: Ints) -> Iterator[Ints]:
        """The members of every group that has some of these ranks."""
        groups = self.over.peer_of[ranks]
        for group in np.unique(groups[groups >= 0]).tolist():
            members = np.flatnonzero((self.over.peer_of == group) & self.facts.usable)
            if len(members):
                yield members


# ------------------------------------------------------------------------------------------------
# What the job's step would be: without its stragglers, with a faster link, with overlap.


@dataclass(frozen=True, eq=False)
class Own:
    """Own time of each rank and step of the job, and whose course it follows meanwhile."""

    ns: Floats  # of the device: its work, and what its host made it idle
    like: Ints
    host_ns: Floats  # what its host needs to issue the step

    def level(self, ranks: Ints, usual: Floats, models: Ints) -> None:
        """Bring ranks down to the usual time of each step, on the course of its model rank."""
        mine = self.ns[ranks]
        changed = mine > usual
        self.ns[ranks] = np.where(changed, usual, mine)
        self.like[ranks] = np.where(changed, models, self.like[ranks])

    def level_host(self, ranks: Ints, usual: Floats) -> None:
        """Bring their hosts down to the usual time of each step."""
        self.host_ns[ranks] = np.fmin(self.host_ns[ranks], usual)


def as_recorded(facts: JobFacts) -> Own:
    """Every rank as it was, without recording cost."""
    # A host that takes longer than its device shows nowhere in the device's progress.
    own = np.minimum(facts.unrecorded_ns, facts.device_ns)
    return Own(own, np.full(own.shape, LIKE_ITSELF), facts.unrecorded_host_ns.copy())


def _fastest(ns: Floats) -> Floats:
    """Every rank as fast as the fastest of each step."""
    known = ~np.isnan(ns)
    return np.where(known, np.where(known, ns, np.inf).min(axis=0, initial=np.inf), ns)


def _typical(own: Floats, ranks: Ints, usual: Floats) -> Ints:
    """For each step the rank whose own time is closest to the usual one."""
    apart = np.abs(own[ranks] - usual)
    known = (~np.isnan(apart)).any(axis=0)
    closest = np.where(np.isnan(apart), np.inf, apart).argmin(axis=0)
    models: Ints = np.where(known, ranks[closest], LIKE_ITSELF)
    return models


def _length(facts: JobFacts, chosen: slice, own_ns: Floats | None) -> Floats:
    """Progress on the device of each rank in each replayed step; 0 where it has none."""
    device = np.nan_to_num(facts.device_ns[:, chosen])
    wanted = (as_recorded(facts).ns if own_ns is None else own_ns)[:, chosen]
    return np.where(np.isnan(wanted), device, wanted)


def own_of_hosts(facts: JobFacts, marks: Marks, chosen: slice) -> JobFacts:
    """Of ranks without devices, own times of the replayed steps as the marks have them: without the
    time in which the thread of the steps stood in a collective, be it waiting or transfer."""
    own = np.full(facts.device_ns.shape, np.nan)
    own[:, chosen] = np.where(np.isnan(facts.window_ns[:, chosen]), np.nan, marks.length_ns)
    return replace(facts, device_ns=own)


def replay(facts: JobFacts, over: Excess, marks: Marks, chosen: slice) -> JobReplay | None:
    """Replay the marks once unchanged and once without recording cost."""
    window = facts.window_ns[:, chosen]
    ranks = (~np.isnan(window)).sum(axis=0)  # that completed each step
    if not ranks.all() or ranks.max() < 2:  # of one rank at a time nobody waits for another
        return None
    unchanged = step_ns(marks)
    corrected = min(step_ns(marks, JobChange(_length(facts, chosen, None))), unchanged)
    timed = timed_step_ns(facts)
    return JobReplay(
        facts,
        over,
        marks,
        chosen,
        recorded_ns=mean(median_of_ranks(window)),
        usual_ns=(
            mean(median_of_ranks(facts.window_ns))
            if timed is None
            else timed * unchanged / max(corrected, 1)  # which has no recording cost to take off
        ),
        identity_ns=unchanged,
        corrected_ns=corrected,
    )
