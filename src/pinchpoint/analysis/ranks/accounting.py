"""Where the job's step goes: own work of the ranks, waiting for the last one, transfers."""

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from pinchpoint.analysis.device.collectives import collective_arguments
from pinchpoint.analysis.ranks.summary import RankPart
from pinchpoint.analysis.statistics import mean as mean_of_all
from pinchpoint.analysis.time.accounting import Breakdown
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Ints

if TYPE_CHECKING:
    from pinchpoint.analysis.ranks.job import Job


WAITING = RankPart(id="waiting-for-ranks", label="waiting for the last rank", group="exposed")
TRANSFER = RankPart(
    id="exposed-transfer", label="transfer between ranks, not hidden", group="exposed"
)
UNSPLIT = RankPart(
    id="between-ranks", label="between ranks: waiting or transfer", group="exposed"
)  # of calls without a name, or that could not be matched with one of another rank


@dataclass(frozen=True)
class Share:
    """A part of the job's step, mean over ranks and steps."""

    part: RankPart
    ns_per_step: int


@dataclass(frozen=True)
class Scaling:
    """How much of the ranks' time is their own work, and where the rest goes."""

    efficiency_ratio: float  # own work over the step, mean over ranks
    waiting_ns_per_step: int
    transfer_ns_per_step: int
    untold_ns_per_step: int  # one of both; the recordings cannot say which
    limit: str  # waiting, transfer, waiting or transfer, nothing


NEARLY_ALL_RATIO = 0.95  # of the step is own work: nothing between the ranks is worth a word


def breakdown(job: "Job") -> tuple[Share, ...]:
    """The parts of the step, most time first; they add up to it exactly."""
    usable = job.facts.usable
    if not usable.any():
        return ()
    mean = job.facts.parts_ns[usable].mean(axis=0)
    from pinchpoint.analysis.ranks.own_time import BETWEEN_RANKS

    between = np.array([p.id in BETWEEN_RANKS for p in job.facts.parts], np.bool_)
    parts = [p for p, b in zip(job.facts.parts, between.tolist(), strict=True) if not b]
    shared = float(mean[between].sum())
    if not job.met:
        return _shares((*parts, UNSPLIT), np.append(mean[~between], shared))
    waited = np.where(np.isnan(job.facts.window_ns), np.nan, job.between.waiting_ns)
    waiting = min(mean_of_all(waited[usable]), shared)
    untold = _untold_ratio(job) * (shared - waiting)
    values = np.append(mean[~between], (waiting, shared - waiting - untold, untold))
    return _shares((*parts, WAITING, TRANSFER, UNSPLIT), values)


def without_profiler(job: "Job", total_ns: int | None = None) -> tuple[Share, ...]:
    """The same parts without the profiler; they add up to ``total_ns`` where that is given.

    Else to the mean over the ranks, which the job's step, a median of them, may differ from.
    Recording costs the hosts time, never a kernel: what it cost the ranks' own time is taken from
    their idle parts, and the rest of the difference from waiting, which ends with it. Where
    waiting is not told from transfer, nothing is taken from either.
    """
    shares = breakdown(job)
    ns = np.array([s.ns_per_step for s in shares], np.float64)
    from pinchpoint.analysis.ranks.own_time import RECORDED_PARTS

    grows = np.array([s.part.id in RECORDED_PARTS for s in shares], np.bool_)
    idle = np.array([s.part.group in ("idle", "host") for s in shares], np.bool_)
    waiting = np.array([s.part in (WAITING, UNSPLIT) for s in shares], np.bool_)
    facts = job.facts
    cost = mean_of_all((facts.own_ns - facts.unrecorded_ns)[facts.usable])
    told = job.met and not job.between.untold_ns.any()
    # What ranks timed themselves differs from their recorded steps in all of its parts.
    told = told and job.timed_ns is None
    surplus = float(ns.sum()) * (1 - job.base_ns / job.step_ns) if told else 0.0
    for rows, most in ((grows, max(cost, 0.0)), (waiting, inf), (idle, inf)):
        held = float(ns[rows].sum())
        less = min(held, most, max(surplus, 0.0))
        if less > 0:
            ns[rows] *= 1 - less / held
            surplus -= less
    if total_ns is not None:
        ns *= total_ns / max(ns.sum(), 1)
    return _shares(tuple(s.part for s in shares), ns)


def _untold_ratio(job: "Job") -> float:
    """Of the exposed time that is not known as waiting, the share that is not known as transfer."""
    untold = float(job.between.untold_ns.sum())
    both = untold + float(job.between.transfer_ns.sum())
    return untold / both if both else 0.0


def _shares(parts: tuple[RankPart, ...], values: Floats) -> tuple[Share, ...]:
    shares = zip(parts, _whole(values).tolist(), strict=True)
    kept = [Share(part, ns) for part, ns in shares if ns]
    return tuple(sorted(kept, key=lambda s: -s.ns_per_step))


def scaling(job: "Job") -> Scaling | None:
    """What the job, without the profiler, keeps of what its ranks could do alone.

    None where nothing was recorded.
    """
    shares = without_profiler(job)
    total = sum(s.ns_per_step for s in shares)
    if not total:
        return None
    lost = {
        limit: sum(s.ns_per_step for s in shares if s.part is part)
        for limit, part in (
            ("transfer", TRANSFER),
            ("waiting", WAITING),
            ("waiting or transfer", UNSPLIT),
        )
    }
    own = (total - sum(lost.values())) / total
    limit = "nothing" if own >= NEARLY_ALL_RATIO else max(lost, key=lost.__getitem__)
    return Scaling(own, lost["waiting"], lost["transfer"], lost["waiting or transfer"], limit)


def _whole(values: Floats) -> Ints:
    """Integers next to the values that add up to their rounded sum."""
    low = np.floor(values).astype(np.int64)
    missing = round(float(values.sum())) - int(low.sum())
    order = np.argsort(-(values - low), kind="stable")
    low[order[:missing]] += 1
    return low


# ------------------------------------------------------------------------------------------------
# Whether a recording is one rank of a job, and how much of its step lies between ranks.
#
# One rank's recording shows that it waits, not for whom; and a rank for which all others wait
# looks busy and healthy. Only all ranks together tell.


@once_per_trace
def one_of_many(trace: Trace) -> int | None:
    """Ranks of the job, or of its largest process group where that is all that is known.

    None for a program without other ranks, as far as the recording says.
    """
    ranks = max(trace.world_size or 0, _largest_group(trace))
    return ranks if ranks > 1 else None


def between_ranks_ratio(parts: Breakdown) -> float:
    """Share of the step in collectives that nothing hides, be it waiting or transfer."""
    from pinchpoint.analysis.ranks.own_time import BETWEEN_RANKS

    between = sum(parts.of_part(part) for part in BETWEEN_RANKS)
    return between / parts.typical_ns if parts.typical_ns else 0.0


def _largest_group(trace: Trace) -> int:
    ops = trace.device_ops
    if ops is None or not len(ops):
        return 0
    rows = np.flatnonzero(ops.known("collective_args"))
    pairs = set(
        zip(
            ops.filled("collective", -1)[rows].tolist(),
            ops.filled("collective_args", -1)[rows].tolist(),
            strict=True,
        )
    )
    known = collective_arguments(trace)
    return max((known[pair].group_size or 0 for pair in pairs), default=0)
