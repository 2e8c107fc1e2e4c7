"""Where each rank meets the others: what the replay of a job needs of a few steps.

Each rank's timeline is cut into its own progress and the stretches in which it is blocked in a
collective. In progress, a collective has two marks: where the rank arrives, and where it cannot go
on without the result (its beginning and the beginning of its exposed end).
"""

from collections.abc import Collection
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.ranks.clocks import Clocks
from pinchpoint.analysis.ranks.matching import GroupName, Matching, Source, by_group, meets
from pinchpoint.analysis.ranks.own_time import JobFacts
from pinchpoint.analysis.ranks.summary import RankSummary, unpack, unpack_bits, unpack_small
from pinchpoint.analysis.ranks.waits import Rendezvous
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Floats, Ints, Mask
from pinchpoint.trace.intervals import covered_before, flatten

Small = NDArray[np.int32]

# Calls of all ranks in the replayed steps, about 120 bytes each: as many steps as make few of them,
# and one step at any rate where that can be afforded.
ENOUGH_MARKS, MOST_MARKS = 200_000, 2_000_000
ENOUGH_COLLECTIVES, MOST_COLLECTIVES = (
    8_000,
    40_000,
)  # distinct collectives, simulated in 50 µs each
_FEWEST_TO_MEET = 2  # ranks that have completed all steps of a replay
NO_STEP = -1  # the sync point is a collective


@dataclass(frozen=True, eq=False)
class Marks:
    """Arrivals and ends of steps of all ranks; arrays of one element each, by sync point.

    A sync point is one collective, or the end of a step, where nobody waits for anybody.
    """

    rank: Small
    progress_ns: Floats  # of the rank at its arrival
    step: Small  # position in the replayed steps
    needed_ns: Floats  # progress at which the result is needed; nan where nobody waits for it
    lane: Ints  # collectives of one group and rank run one after the other
    by_rank: Small  # positions in these arrays by rank, step and time
    low: Small  # results that the rank had to have between its mark before and this one:
    high: Small  # positions in ``results``
    results: Small  # marks whose result is needed, by rank and time
    edges: Ints  # of the sync points in these arrays
    transfer_ns: Floats  # of each sync point
    kind: Ints  # of each sync point: number in the job's table of kinds
    ends_step: (
        Ints  # of each sync point: position of the step that it ends; NO_STEP for a collective
    )
    start_ns: Floats  # (ranks,): when each begins, on the common clock; nan if it is left out
    length_ns: Floats  # (ranks, steps): progress in each step

    @property
    def steps(self) -> int:
        """How many steps are replayed."""
        return int(self.length_ns.shape[1])


def replayed_steps(
    facts: JobFacts, found: Rendezvous, wanted: Collection[int] = ()
) -> slice | None:
    """As many consecutive steps as can be replayed; None where even one is too much.

    ``wanted`` are positions of steps that matter most.
    """
    steps = len(facts.step_numbers)
    calls = sum(int(o.ranks.sum()) for o in found.groups.values())
    collectives = sum(len(o.keys) for o in found.groups.values())
    if not steps or not collectives:
        return None
    each = max(calls / steps / ENOUGH_MARKS, collectives / steps / ENOUGH_COLLECTIVES)
    count = min(steps, int(1 / each))
    if calls / steps <= MOST_MARKS and collectives / steps <= MOST_COLLECTIVES:
        count = max(count, 1)
    if not count:
        return None
    middle = sorted(wanted)[len(wanted) // 2] if wanted else steps // 2
    first = min(max(middle - count // 2, 0), steps - count)
    chosen = slice(first, first + count)
    completed = ~np.isnan(facts.window_ns)
    if completed[:, chosen].all(axis=1).sum() < _FEWEST_TO_MEET:
        return _of_all_ranks(completed[facts.usable], count) or chosen
    return chosen


def _of_all_ranks(completed: Mask, count: int) -> slice | None:
    """The longest stretch of steps that each of these ranks completed, at most ``count``."""
    shared = np.append(np.append(False, completed.all(axis=0)), False)
    begins, ends = np.flatnonzero(np.diff(shared)).reshape(-1, 2).T
    if not len(begins):
        return None
    longest = int((ends - begins).argmax())
    first, last = int(begins[longest]), int(ends[longest])
    return slice(max(first, last - count), last)


@dataclass(frozen=True, eq=False)
class _Collectives:
    """The collectives of all groups, numbered group after group."""

    first: dict[GroupName, int]
    end_ns: Ints
    transfer_ns: Ints
    kind: Ints

    @staticmethod
    def of(found: Rendezvous) -> "_Collectives":
        sizes = [len(calls.keys) for calls in found.groups.values()]
        first = np.append(0, np.cumsum(sizes)).tolist()
        return _Collectives(
            dict(zip(found.groups, first, strict=False)),
            np.concatenate([calls.end_ns for calls in found.groups.values()]),
            np.concatenate([calls.shortest_ns for calls in found.groups.values()]),
            np.concatenate([calls.kind for calls in found.groups.values()]),
        )


@dataclass(frozen=True, eq=False)
class _Columns:
    """Marks of one rank or more: its calls, then the ends of its steps."""

    rank: Small
    sync_point: Small  # number of the collective; below zero: the end of a step
    time_ns: Ints  # on the rank's clock
    released_ns: Ints  # when the result let the rank go on; NEVER where it did not wait
    progress_ns: Floats
    needed_ns: Floats
    step: Small
    lane: Small


_TYPES = ("i4", "i4", "i8", "i8", "f8", "f8", "i4", "i4")  # of the columns, in order


class _Laid:
    """Columns of rank after rank, in buffers that grow."""

    def __init__(self) -> None:
        self.buffers = [bytearray() for _ in _TYPES]

    def add(self, columns: _Columns) -> None:
        """The next rank."""
        for buffer, kind, column in zip(self.buffers, _TYPES, fields(columns), strict=True):
            buffer += np.ascontiguousarray(getattr(columns, column.name), kind).tobytes()

    def done(self) -> _Columns:
        """All of them, without a copy."""
        laid = zip(self.buffers, _TYPES, strict=True)
        return _Columns(*(np.frombuffer(buffer, kind) for buffer, kind in laid))


_NEVER = np.int64(1) << 62  # beyond any time, and sums of two still fit


def marks(
    source: Source,
    facts: JobFacts,
    matching: Matching,
    clocks: Clocks,
    found: Rendezvous,
    chosen: slice,
) -> Marks | None:
    """The marks of the chosen steps; None where no rank completed all of them.

    None also where calls were thinned out: what is left of them does not add up to the step.
    """
    if any(r.stride > 1 for r in facts.ranks) or not found.groups:
        return None
    numbers = facts.step_numbers[chosen]
    collectives, n = _Collectives.of(found), len(facts.ranks)
    laid, length_of_all = _Laid(), 0
    start, length = np.full(n, np.nan), np.zeros((n, len(numbers)))
    for rank, summary in enumerate(source()):
        window = _window(summary, numbers)
        if window is None:
            continue
        calls, number = _met(summary, matching, found, collectives, window)
        mine, length[rank] = _columns(rank, summary, calls, number, window)
        laid.add(mine)
        length_of_all += len(mine.rank)
        begin = unpack(summary.steps.start_ns)[window[:1]]
        at_common = clocks.common(rank, begin) if clocks.aligned[rank] else begin
        start[rank] = float(at_common[0] - clocks.middle_ns)
    return _by_sync_point(laid, collectives, start, length) if length_of_all else None


def _window(summary: RankSummary, numbers: Ints) -> Ints | None:
    """Positions of the wanted steps in the rank's own; None unless it has all, one by one."""
    own = unpack(summary.steps.number)
    at = np.searchsorted(own, numbers)
    if len(own) == 0 or at.max(initial=0) >= len(own) or (own[at] != numbers).any():
        return None
    return at if (np.diff(at) == 1).all() else None


def _met(
    summary: RankSummary,
    matching: Matching,
    found: Rendezvous,
    collectives: _Collectives,
    window: Ints,
) -> tuple[Ints, Ints]:
    """The rank's calls in those steps that others share, and the numbers of their collectives."""
    step = unpack_small(summary.calls.step)
    together = np.array([meets(k.kind) for k in summary.call_kinds], np.bool_)
    at, number = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for calls in by_group(summary):
        keys = matching.keys(summary, calls)
        if keys is None or calls.group not in found.groups:
            continue
        peers = found.groups[calls.group]
        place = np.searchsorted(peers.keys, keys)
        met = together[calls.kind] & (peers.ranks[place] > 1)
        met &= (step[calls.at] >= window[0]) & (step[calls.at] <= window[-1])
        at.append(calls.at[met])
        number.append(place[met] + collectives.first[calls.group])
    return np.concatenate(at), np.concatenate(number)


def _columns(
    rank: int, summary: RankSummary, calls: Ints, number: Ints, window: Ints
) -> tuple[_Columns, Floats]:
    """One rank's marks, and its progress in each step."""
    start = unpack(summary.calls.start_ns)[calls]
    end = start + unpack(summary.calls.duration_ns)[calls]
    exposed = unpack(summary.calls.exposed_ns)[calls]
    ready = unpack(summary.calls.ready_ns)[calls]
    kinds = np.array([k.group for k in summary.call_kinds], np.int64)
    step_end = unpack(summary.steps.end_ns)[window]
    begin = int(unpack(summary.steps.start_ns)[window[0]])
    # What a rank computes until a collective ends hides it but for the gaps between its kernels,
    # in which it waits for nobody.
    covered = unpack_bits(summary.calls.covered, len(summary.calls.step) // 4)[calls]
    hidden = covered & (2 * exposed < end - start)
    exposed = np.where(hidden, 0, exposed)
    blocked = flatten(end - exposed, end)

    def progress(times: Ints) -> Floats:
        passed = times - begin - (covered_before(blocked, times) - covered_before(blocked, begin))
        return np.maximum(passed, 0).astype(float)

    n, steps = len(calls), len(window)
    at_edges = progress(np.append(begin, step_end))
    waits = exposed > 0
    nothing = np.full(steps, np.nan)
    group = kinds[unpack_small(summary.calls.kind)[calls]] if n else np.zeros(0, np.int64)
    columns = _Columns(
        rank=np.full(n + steps, rank),
        sync_point=np.append(number, -1 - np.arange(steps)),
        time_ns=np.append(ready, step_end),
        released_ns=np.append(np.where(waits, end, _NEVER), np.full(steps, _NEVER)),
        progress_ns=np.append(progress(ready), at_edges[1:]),
        needed_ns=np.append(np.where(waits, progress(end - exposed), np.nan), nothing),
        step=np.append(unpack_small(summary.calls.step)[calls] - window[0], np.arange(steps)),
        lane=np.append(group, np.zeros(steps, np.int64)),
    )
    return columns, np.diff(at_edges)


def _by_sync_point(laid: _Laid, collectives: _Collectives, start: Floats, length: Floats) -> Marks:
    """The marks in the order in which the sync points happened."""
    ordered = _in_order(laid, collectives)
    changes = np.diff(ordered.sync_point) != 0
    edges = np.append(0, np.append(np.flatnonzero(changes) + 1, len(ordered.rank)))
    first = ordered.sync_point[edges[:-1]]
    low, high, results = _needs(ordered)
    lanes = int(ordered.lane.max(initial=0)) + 1
    return Marks(
        rank=ordered.rank,
        progress_ns=ordered.progress_ns,
        step=ordered.step,
        needed_ns=ordered.needed_ns,
        lane=ordered.rank.astype(np.int64) * lanes + ordered.lane,
        by_rank=_positions((ordered.time_ns, ordered.step, ordered.rank)),
        low=low,
        high=high,
        results=results,
        edges=edges,
        transfer_ns=np.where(first < 0, 0, collectives.transfer_ns[np.maximum(first, 0)]).astype(
            float
        ),
        kind=np.where(first < 0, -1, collectives.kind[np.maximum(first, 0)]),
        ends_step=np.where(first < 0, -1 - first, NO_STEP),
        start_ns=start,
        length_ns=length,
    )


def _in_order(laid: _Laid, collectives: _Collectives) -> _Columns:
    """The columns by step, time of the sync point and rank; the buffers are given up meanwhile."""
    columns = laid.done()
    # A step ends after everything that happens in it.
    when = np.full(len(columns.rank), _NEVER)
    collective = columns.sync_point >= 0
    when[collective] = collectives.end_ns[columns.sync_point[collective]]
    order = _positions((columns.rank, columns.sync_point, when, columns.step))
    del columns, when, collective
    out = []
    for at, kind in enumerate(_TYPES):
        out.append(np.frombuffer(laid.buffers[at], kind)[order])
        laid.buffers[at] = bytearray()
    return _Columns(*out)


def _positions(keys: tuple[NDArray[Any], ...]) -> Small:
    return np.lexsort(keys).astype(np.int32)


def _needs(marks: _Columns) -> tuple[Small, Small, Small]:
    """Which results each mark had to wait for that no mark of its rank before it waited for."""
    results = np.flatnonzero(marks.released_ns < _NEVER).astype(np.int32)
    results = results[np.lexsort((marks.released_ns[results], marks.rank[results]))]
    low, high = np.zeros((2, len(marks.rank)), np.int32)
    ranks = np.unique(marks.rank)
    of_rank = np.argsort(marks.rank, kind="stable").astype(np.int32)
    first = np.append(np.searchsorted(marks.rank[of_rank], ranks), len(of_rank)).tolist()
    edges = np.append(ranks, ranks[-1:] + 1)
    first_result = np.searchsorted(marks.rank[results], edges).tolist()
    for i in range(len(ranks)):
        rows = of_rank[first[i] : first[i + 1]]
        rows = rows[np.argsort(marks.time_ns[rows], kind="stable")]
        mine = results[first_result[i] : first_result[i + 1]]
        passed = np.searchsorted(marks.released_ns[mine], marks.time_ns[rows], "right")
        high[rows] = first_result[i] + passed
        low[rows] = np.append(first_result[i], high[rows][:-1])
    return low, high, results
