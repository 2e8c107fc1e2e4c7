"""What the step of a job would be if a piece of one rank, or of all, were free.

Each rank's own profile says how much shorter its own time gets, with collectives that take no
time, so that waiting for others is no gain. The replay of the job says what the others
make of that: a rank that nobody waits for may get as fast as it likes. Of ranks without devices,
own time is that in which the thread of the steps stood in no collective.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from pinchpoint.analysis.causal.on_cpu import of_own_time
from pinchpoint.analysis.causal.piece import LEAST_STEP_RATIO, Causal
from pinchpoint.analysis.causal.pieces import Cut
from pinchpoint.analysis.causal.profile import without_waiting
from pinchpoint.analysis.ranks.job import Job
from pinchpoint.analysis.ranks.what_if import JobReplay, as_recorded
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace

CUTS = (Cut.LINE, Cut.OPERATOR, Cut.WAIT, Cut.COPY)
CUTS_OF_HOSTS = (Cut.LINE, Cut.OPERATOR)
MOST_PIECES = 16  # each is replayed on one rank and on all; the largest of any rank

Key = tuple[Cut, str]
Gains = Mapping[Key, int]  # nanoseconds a step that the rank's own time gets shorter by


@dataclass(frozen=True)
class JobPiece:
    """One piece; its step on the rank where it is worth most, and on all ranks at once."""

    cut: Cut
    name: str  # as recorded
    rank: int  # position of the rank whose own time it takes most of
    own_ns: int  # of that rank, a step
    least_own_ns: int  # of the rank whose own time it takes least of
    step_if_free_there_ns: int
    step_if_free_ns: int
    step_if_even_ns: int  # where it takes each rank as little as the rank that has least of it


@dataclass(frozen=True)
class OfJob:
    """The pieces of a job, the largest gain first; empty with a reason where none can be said."""

    base_ns: int | None
    pieces: tuple[JobPiece, ...]
    nobody_late_ns: int | None = None  # the step with no rank slower than the median of its peers
    no_transfers_ns: int | None = None  # the step if transfers took no time
    why_not: str | None = None


def own_gains(trace: Trace, named: Trace | None = None) -> Gains:
    """What the pieces of one rank take of its own time; without a device, those of the window for
    names, as shares of its own time."""
    if (bare := of_own_time(trace, CUTS_OF_HOSTS)) is not None:
        return _of_host(bare, None if named is None else of_own_time(named, CUTS_OF_HOSTS))
    found = without_waiting(trace, CUTS)
    if not found.of(Cut.OPERATOR):  # replayed graphs, and recordings of the device alone
        found = without_waiting(trace, (Cut.KERNEL, *CUTS))
    gains: dict[Key, int] = {}
    for piece in found.pieces:
        if piece.cut is Cut.OPERATOR and not piece.in_kernels and piece.device_ns > piece.host_ns:
            continue  # the call of a collective
        key = (piece.cut, piece.name)
        gains[key] = max(gains.get(key, 0), piece.base_ns - piece.step_if_free_ns)
    return {key: ns for key, ns in gains.items() if ns > 0}


def _of_host(bare: Causal, named: Causal | None) -> Gains:
    """Names are recorded in other steps, which take longer by that."""
    found = bare if named is None else named
    scale = (bare.base_ns or 0) / max(found.base_ns or 0, 1)
    return {(one.cut, one.name): round(one.host_ns * scale) for one in found.pieces if one.host_ns}


def of_job(job: Job, ranks: Sequence[Gains]) -> OfJob:
    """The profile of a job; ``ranks`` are in the order of the job's."""
    replay = job.replay or job.of_hosts
    if replay is None:
        return OfJob(None, (), why_not=_why_not(job))
    largest: dict[Key, int] = {}
    for gains in ranks:
        for key, ns in gains.items():
            largest[key] = max(largest.get(key, 0), ns)
    least = LEAST_STEP_RATIO * replay.base_ns
    chosen = [key for key, ns in largest.items() if ns >= least]
    chosen = sorted(chosen, key=lambda key: (-largest[key], key[1]))[:MOST_PIECES]
    ratio = job.said_ratio
    pieces = [_piece(replay, key, [gains.get(key, 0) for gains in ranks], ratio) for key in chosen]
    pieces.sort(key=lambda one: (one.step_if_free_ns, one.step_if_free_there_ns, one.name))
    kinds = dict.fromkeys(np.unique(replay.marks.kind).tolist(), 0.0)
    return OfJob(
        replay.base_ns,
        tuple(pieces),
        min(replay.ask(replay.all_as_median()), replay.base_ns),
        min(replay.ask(transfer_factors=kinds), replay.base_ns),
    )


def _why_not(job: Job) -> str:
    if not job.met:
        return "no collectives of the ranks could be matched"
    if not (~np.isnan(job.facts.window_ns)).all(axis=0).any():
        return "no step was recorded of all of its ranks"
    return "its collectives cannot be replayed: too many, or not all of them were kept"


def _piece(replay: JobReplay, key: Key, own_ns: Sequence[int], ratio: float) -> JobPiece:
    """``own_ns`` are of recorded steps; ``ratio`` is that of the step that is said to these."""
    rank = int(np.argmax(own_ns))
    least = min(own_ns)
    there = [ns if at == rank else 0 for at, ns in enumerate(own_ns)]
    return JobPiece(
        cut=key[0],
        name=key[1],
        rank=rank,
        own_ns=round(ratio * own_ns[rank]),
        least_own_ns=round(ratio * least),
        step_if_free_there_ns=_without(replay, there),
        step_if_free_ns=_without(replay, own_ns),
        step_if_even_ns=_without(replay, [ns - least for ns in own_ns]),
    )


def _without(replay: JobReplay, own_ns: Sequence[int]) -> int:
    """The job's step where each rank's own time is that much shorter."""
    own = as_recorded(replay.facts)
    shorter = np.array(own_ns, np.float64)[: len(own.ns), None]
    own.ns[:] = np.maximum(own.ns - shorter, 0.0)
    return min(replay.ask(own), replay.base_ns)
