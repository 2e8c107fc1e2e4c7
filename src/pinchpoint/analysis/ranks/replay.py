"""What would the job's step be if a rank were faster, the link were, or transfers were hidden?

Simulated is what the marks leave open: a collective ends when its last rank has arrived and the
transfer is done, and who needs the result waits until then. The steps are run through twice, and
the second time counts.
"""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.ranks.marks import NO_STEP, Marks
from pinchpoint.trace.arrays import Floats, Ints

PASSES = 2  # one from the recorded state, to settle, and one that counts
LIKE_ITSELF = -1  # no rank's number


@dataclass(frozen=True, eq=False)
class Change:
    """What is different. None: as recorded."""

    length_ns: Floats | None = None  # (ranks, steps): the ranks' own progress
    like: Ints | None = None  # (ranks, steps): rank whose course a rank follows; LIKE_ITSELF
    transfer_factor: Floats | None = None  # (meetings,)
    hidden: bool = False  # nobody waits for a transfer as long as the next may start


def step_ns(recorded: Marks, change: Change | None = None) -> float:
    """Mean period of the replayed steps on the slowest rank, once the job has settled."""
    run = _Run(recorded, change or Change())
    for number in range(PASSES):
        run.once(number)
    return float(np.nanmax(run.last_ns - run.before_ns)) / recorded.steps


def _follow(recorded: Marks, like: Ints, length: Floats, before: Floats, progress: Floats) -> None:
    """Give marks of some ranks and steps the places that they have on another rank.

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
            course = recorded.progress_ns[model] - before[other, step]
            progress[rows] = course * (length[rank, step] / whole)


class _Run:
    """One simulation: the state of every rank while it goes through the meetings."""

    def __init__(self, recorded: Marks, change: Change) -> None:
        self.recorded, self.hidden = recorded, change.hidden
        length = recorded.length_ns if change.length_ns is None else change.length_ns
        before = np.cumsum(recorded.length_ns, axis=1) - recorded.length_ns
        after = np.cumsum(length, axis=1) - length
        cell = recorded.rank, recorded.step
        scale = np.divide(
            length, recorded.length_ns, out=np.ones_like(length), where=recorded.length_ns > 0
        )
        progress = (recorded.progress_ns - before[cell]) * scale[cell]
        if change.like is not None:
            _follow(recorded, change.like, length, before, progress)
        self.arrives = after[cell] + progress
        self.needed = after[cell] + (recorded.needed_ns - before[cell]) * scale[cell]
        self.all_ns = length.sum(axis=1)
        self.transfer = recorded.transfer_ns
        if change.transfer_factor is not None:
            self.transfer = self.transfer * change.transfer_factor
        self.meeting = np.repeat(np.arange(len(recorded.edges) - 1), np.diff(recorded.edges))
        self.delay = recorded.start_ns.copy()
        self.lane_end = np.full(int(recorded.lane.max(initial=0)) + 1, -np.inf)
        self.before_ns = self.last_ns = self.delay

    def once(self, number: int) -> None:
        """Go through all steps once; progress continues from the pass before."""
        marks = self.recorded
        shift = number * self.all_ns
        end = np.zeros(len(marks.edges) - 1)
        waits = np.add.reduceat(marks.high - marks.low, marks.edges[:-1]) > 0
        for meeting, start in enumerate(marks.edges[:-1].tolist()):
            mine = slice(start, marks.edges[meeting + 1])
            ranks = marks.rank[mine]
            if waits[meeting] and not self.hidden:
                self._wait(mine, end, shift)
            arrival = self.arrives[mine] + shift[ranks] + self.delay[ranks]
            if marks.ends_step[meeting] == marks.steps - 1:
                self.before_ns, self.last_ns = self.last_ns, np.full(len(shift), np.nan)
                self.last_ns[ranks] = arrival
            if marks.ends_step[meeting] == NO_STEP:
                lanes = marks.lane[mine]
                arrival = np.maximum(arrival, self.lane_end[lanes])
                end[meeting] = float(arrival.max()) + self.transfer[meeting]
                self.lane_end[lanes] = end[meeting]

    def _wait(self, mine: slice, end: Floats, shift: Floats) -> None:
        """Ranks go on no earlier than the results that they need are there."""
        low, count = self.recorded.low[mine], self.recorded.high[mine] - self.recorded.low[mine]
        first = np.cumsum(count) - count
        rows = self.recorded.results[np.repeat(low - first, count) + np.arange(count.sum())]
        ranks = self.recorded.rank[rows]
        needed = end[self.meeting[rows]] - self.needed[rows] - shift[ranks]
        np.maximum.at(self.delay, ranks, needed)
