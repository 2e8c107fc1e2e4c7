"""What would the job's step be if a rank were faster, the link were, or transfers were hidden?

Simulated is what the marks leave open: a collective ends when its last rank has arrived and the
transfer is done, and who needs the result waits until then. The steps are run through twice, and
the second time counts.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.ranks.marks import NO_STEP, Marks

Floats = NDArray[np.float64]

PASSES = 2


@dataclass(frozen=True, eq=False)
class Change:
    """What is different. None: as recorded."""

    own_factor: Floats | None = None  # (ranks, steps)
    transfer_factor: Floats | None = None  # (meetings,)
    hidden: bool = False  # nobody waits for a transfer as long as the next may start


def step_ns(recorded: Marks, change: Change | None = None) -> float:
    """Mean period of the replayed steps on the slowest rank, once the job has settled."""
    run = _Run(recorded, change or Change())
    for number in range(PASSES):
        run.once(number)
    return float(np.nanmax(run.last_ns - run.before_ns)) / recorded.steps


class _Run:
    """One simulation: the state of every rank while it goes through the meetings."""

    def __init__(self, recorded: Marks, change: Change) -> None:
        self.recorded, self.hidden = recorded, change.hidden
        factor = change.own_factor
        scale = np.ones_like(recorded.length_ns) if factor is None else factor
        length = recorded.length_ns * scale
        before = np.cumsum(recorded.length_ns, axis=1) - recorded.length_ns
        after = np.cumsum(length, axis=1) - length
        cell = recorded.rank, recorded.step
        self.arrives = after[cell] + (recorded.progress_ns - before[cell]) * scale[cell]
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
