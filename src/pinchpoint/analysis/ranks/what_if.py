"""What the job's step would be: without its stragglers, with a faster link, with overlap."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.ranks.facts import Facts
from pinchpoint.analysis.ranks.known import (
    lower_median_of_ranks,
    mean,
    mean_of_ranks,
    median_of_ranks,
)
from pinchpoint.analysis.ranks.marks import Marks
from pinchpoint.analysis.ranks.replay import Change, step_ns
from pinchpoint.analysis.ranks.stragglers import Excess

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Replay:
    """The job's steps, ready for questions. All answers are without recording cost."""

    facts: Facts
    over: Excess
    marks: Marks
    chosen: slice  # of the job's steps
    recorded_ns: float  # mean step as recorded
    identity_ns: float  # the same, replayed unchanged
    corrected_ns: float  # replayed without recording cost

    @property
    def identity_error(self) -> float:
        """Relative error of the unchanged replay."""
        return self.identity_ns / self.recorded_ns - 1 if self.recorded_ns else 0.0

    @property
    def base_ns(self) -> int:
        """The step without recording cost: the recorded one times the ratio of two replays."""
        return round(self.recorded_ns * self.corrected_ns / max(self.identity_ns, 1))

    def ask(
        self,
        own_ns: Floats | None = None,
        *,
        transfer_factors: Mapping[int, float] | None = None,
        hidden: bool = False,
    ) -> int:
        """The step with other own times (ranks × steps of the job), transfers, or overlap.

        ``transfer_factors`` are by the number of the kind of collective.
        """
        factor = np.ones(len(self.marks.transfer_ns))
        for kind, of_kind in (transfer_factors or {}).items():
            factor[self.marks.kind == kind] = of_kind
        change = Change(_factor(self.facts, self.chosen, own_ns), factor, hidden)
        return round(self.base_ns * step_ns(self.marks, change) / max(self.corrected_ns, 1))

    def as_peers(self, ranks: Ints) -> Floats:
        """Own times with these ranks as fast as the median of the others."""
        return self._levelled(ranks, balanced=False)

    def balanced(self, ranks: Ints) -> Floats:
        """Own times with the work of all ranks shared out evenly, if these ranks have too much."""
        return self._levelled(ranks, balanced=True)

    def all_as_median(self) -> Floats:
        """Own times with no rank slower than the median of its peers in any step."""
        own = self.facts.unrecorded_ns.copy()
        for group in np.unique(self.over.peer_of[self.over.peer_of >= 0]).tolist():
            members = np.flatnonzero((self.over.peer_of == group) & self.facts.usable)
            if len(members):
                own[members] = np.fmin(own[members], lower_median_of_ranks(own[members]))
        return own

    def _levelled(self, ranks: Ints, *, balanced: bool) -> Floats:
        own = self.facts.unrecorded_ns.copy()
        groups = self.over.peer_of[ranks]
        for group in np.unique(groups[groups >= 0]).tolist():
            members = np.flatnonzero((self.over.peer_of == group) & self.facts.usable)
            late = np.intersect1d(members, ranks)
            others = np.setdiff1d(members, late)
            if balanced:
                own[members] = mean_of_ranks(own[members])
            elif len(others):
                own[late] = np.fmin(own[late], median_of_ranks(own[others]))
        return own


def _factor(facts: Facts, chosen: slice, own_ns: Floats | None) -> Floats:
    """By what each rank's progress on the device changes in each replayed step."""
    device = facts.device_ns[:, chosen]
    wanted = (facts.unrecorded_ns if own_ns is None else own_ns)[:, chosen]
    known = (device > 0) & ~np.isnan(wanted)
    factor = np.ones(device.shape)
    factor[known] = wanted[known] / device[known]
    # A host that takes longer than its device shows nowhere in the device's progress.
    return np.minimum(factor, 1.0) if own_ns is None else factor


def replay(facts: Facts, over: Excess, marks: Marks, chosen: slice) -> Replay | None:
    """Replay the marks once unchanged and once without recording cost."""
    window = facts.window_ns[:, chosen]
    if np.isnan(window).all(axis=0).any():
        return None
    return Replay(
        facts,
        over,
        marks,
        chosen,
        recorded_ns=mean(median_of_ranks(window)),
        identity_ns=step_ns(marks),
        corrected_ns=step_ns(marks, Change(_factor(facts, chosen, None))),
    )
