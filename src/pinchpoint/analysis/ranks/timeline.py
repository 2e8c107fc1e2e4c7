"""One step of a few ranks side by side, on the common clock."""

import numpy as np

from pinchpoint.analysis.ranks.job import Job
from pinchpoint.analysis.ranks.matching import Source, renumbered
from pinchpoint.analysis.ranks.summary import RankSummary, unpack
from pinchpoint.analysis.ranks.waits import split
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Ints

MOST_LANES = 10  # ranks that fit below each other on a screen
MOST_PIECES = 200  # of a lane; more than a screen has pixels for


@dataclass(frozen=True)
class Piece:
    """A stretch of a rank's step that is not plain own work."""

    what: str  # waiting, transfer (nothing computed meanwhile), hidden (both at once)
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class RankLane:
    """One rank (its position); times since the first rank began the step."""

    rank: int
    start_ns: int
    end_ns: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class JobTimeline:
    """The step with most lateness."""

    step: int  # its number
    lanes: tuple[RankLane, ...]


def timeline(source: Source, job: Job) -> JobTimeline | None:
    """The lanes of the late ranks, the quickest ones and some in between; None without steps."""
    if not len(job.facts.step_numbers) or not job.facts.usable.any():
        return None
    at = job.late.incidents[0].step if job.late.incidents else len(job.facts.step_numbers) // 2
    number, chosen = int(job.facts.step_numbers[at]), _chosen(job, at)
    lanes = []
    for rank, summary in enumerate(renumbered(source, job.step_shifts)()):
        if rank in chosen:
            lane = _lane(rank, summary, job, number)
            lanes += [lane] if lane is not None else []
    if not lanes:
        return None
    first = min(lane.start_ns for lane in lanes)
    return JobTimeline(number, tuple(_since(lane, first) for lane in lanes))


def _chosen(job: Job, step: int) -> set[int]:
    own = job.facts.own_ns[:, step]
    known = np.flatnonzero(~np.isnan(own) & job.clocks.aligned)
    order = known[np.argsort(-own[known], kind="stable")]
    if len(order) <= MOST_LANES:
        return set(order.tolist())
    late = [late.rank for late in job.late_ranks if late.rank in set(known.tolist())]
    evenly = order[np.linspace(0, len(order) - 1, MOST_LANES).astype(int)].tolist()
    return set(dict.fromkeys([*late[: MOST_LANES // 2], *evenly][:MOST_LANES]))


def _lane(rank: int, summary: RankSummary, job: Job, number: int) -> RankLane | None:
    steps = np.flatnonzero(unpack(summary.steps.number) == number)
    if not len(steps):
        return None
    step = int(steps[0])
    start, exposed = unpack(summary.calls.start_ns), unpack(summary.calls.exposed_ns)
    end = start + unpack(summary.calls.duration_ns)
    pieces = []
    for part in split(rank, summary, job.matching, job.found):
        mine = part.calls.at[part.step == step]
        arrived = start[mine] + part.waiting_ns[part.step == step]
        alone = end[mine] - exposed[mine]
        pieces += _pieces("hidden", start[mine], alone)
        pieces += _pieces("waiting", np.maximum(start[mine], alone), arrived)
        pieces += _pieces("transfer", np.maximum(arrived, alone), end[mine])
    edges = (unpack(summary.steps.start_ns)[step], unpack(summary.steps.end_ns)[step])
    low, high = job.clocks.common(rank, np.array(edges)).tolist()
    shift = low - int(edges[0])
    pieces.sort(key=lambda p: p.start_ns - p.end_ns)  # the longest ones, should there be many
    kept = sorted(pieces[:MOST_PIECES], key=lambda p: p.start_ns)
    moved = [Piece(p.what, p.start_ns + shift, p.end_ns + shift) for p in kept]
    return RankLane(rank, low, high, tuple(moved))


def _pieces(what: str, start: Ints, end: Ints) -> list[Piece]:
    pairs = zip(start.tolist(), end.tolist(), strict=True)
    return [Piece(what, low, high) for low, high in pairs if high > low]


def _since(lane: RankLane, first: int) -> RankLane:
    pieces = [Piece(p.what, p.start_ns - first, p.end_ns - first) for p in lane.pieces]
    return RankLane(lane.rank, lane.start_ns - first, lane.end_ns - first, tuple(pieces))
