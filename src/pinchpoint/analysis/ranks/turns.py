"""Whether ranks that send each other pieces of a step compute one after the other, never together.

Stages of a pipeline that hand a micro-batch on and wait for its gradient before they begin the next
one are never busy at the same time. Each rank's own time is its steps without what it stands in
transfers and collectives; on the common clock, all own times together over the time in which any
rank worked says how many ranks worked at once.
"""

import re
from collections import defaultdict

import numpy as np

from pinchpoint.analysis.ranks.clocks import Clocks
from pinchpoint.analysis.ranks.collective_calls import PAIR
from pinchpoint.analysis.ranks.matching import Source
from pinchpoint.analysis.ranks.summary import RankSummary, unpack, unpack_small
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Ints
from pinchpoint.trace.intervals import Intervals, complement, flatten

MOST_RANKS = 64  # of one pipeline, whose intervals are in memory together
_ENDS = re.compile(r"\[(\d+), (\d+)\]")  # of a group that stands for one direction


@dataclass(frozen=True)
class Turns:
    """Ranks (positions) that exchange several messages a step, in both directions."""

    ranks: tuple[int, ...]
    own_ns: tuple[float, ...]  # of each: mean of its steps, as recorded
    together_ns: float  # in which at least one of them worked, mean of a step
    messages: float  # from one to the next in a step, the median over those that send
    in_flight: int  # most of them at once: sent before the next answer was received

    @property
    def at_once(self) -> float:
        """How many of them worked at the same time, while any did; 1.0: never two."""
        return sum(self.own_ns) / max(self.together_ns, 1.0)


def turns(source: Source, clocks: Clocks) -> tuple[Turns, ...]:
    """One for each set of ranks that exchange messages; empty where none do or clocks are apart."""
    own: dict[int, Intervals] = {}
    steps: dict[int, int] = {}
    sent: dict[tuple[int, int], float] = {}
    flight: dict[int, int] = {}
    number: dict[int, int] = {}
    for rank, summary in enumerate(source()):
        number[-1 if summary.rank is None else summary.rank] = rank
        ends = _ends_of_kinds(summary)
        count = len(unpack(summary.steps.number))
        if not ends or not clocks.aligned[rank] or not count or len(own) >= MOST_RANKS:
            continue
        if summary.calls.stride > 1:
            continue
        steps[rank], own[rank] = count, _own(rank, summary, clocks)
        kind = unpack_small(summary.calls.kind)
        for at, pair in ends.items():
            if pair[0] == summary.rank:
                sent[pair] = sent.get(pair, 0.0) + float((kind == at).sum()) / count
        flight[rank] = _in_flight(summary, ends, kind)
    return tuple(
        found
        for members in _connected({(number[a], number[b]) for a, b in sent if {a, b} <= {*number}})
        if (found := _of(members, own, steps, sent, flight, number)) is not None
    )


def _ends_of_kinds(summary: RankSummary) -> dict[int, tuple[int, int]]:
    """Sender and receiver of each kind of transfer between two ranks."""
    out = {}
    for at, kind in enumerate(summary.call_kinds):
        found = _ENDS.fullmatch(summary.groups[kind.group].ranks or "")
        if kind.kind == PAIR and found is not None:
            out[at] = (int(found[1]), int(found[2]))
    return out


def _own(rank: int, summary: RankSummary, clocks: Clocks) -> Intervals:
    """When the rank did not stand in a transfer or a collective, on the common clock."""
    end = unpack(summary.calls.start_ns) + unpack(summary.calls.duration_ns)
    stood = flatten(end - unpack(summary.calls.exposed_ns), end)
    begin, until = unpack(summary.steps.start_ns), unpack(summary.steps.end_ns)
    free = [complement(stood, a, b) for a, b in zip(begin.tolist(), until.tolist(), strict=True)]
    start, stop = (np.concatenate([getattr(f, edge) for f in free]) for edge in ("start", "end"))
    return flatten(clocks.common(rank, start), clocks.common(rank, stop))


def _in_flight(summary: RankSummary, ends: dict[int, tuple[int, int]], kind: Ints) -> int:
    """Most messages that the rank has sent to a peer beyond those that it received from it, within
    a step; of the direction in which it sends first."""
    step, start = unpack_small(summary.calls.step), unpack(summary.calls.start_ns)
    most = 0
    for peer in {b if a == summary.rank else a for a, b in ends.values()}:
        way = np.zeros(len(kind), np.int64)
        for at, pair in ends.items():
            if peer in pair:
                way[kind == at] = 1 if pair[1] == peer else -1
        for number in np.unique(step).tolist():
            mine = np.flatnonzero((step == number) & (way != 0))
            course = np.cumsum(way[mine[np.argsort(start[mine], kind="stable")]])
            most = max(most, int(course.max(initial=0)))
    return most


def _connected(pairs: set[tuple[int, int]]) -> list[set[int]]:
    """Ranks that reach each other through pairs that send to each other, both ways."""
    near: dict[int, set[int]] = defaultdict(set)
    for a, b in pairs:
        if (b, a) in pairs:
            near[a].add(b)
    out: list[set[int]] = []
    for rank in sorted(near):
        if any(rank in found for found in out):
            continue
        members, fresh = set[int](), {rank}
        while fresh:
            members |= fresh
            fresh = {other for one in fresh for other in near[one]} - members
        out.append(members)
    return out


def _of(
    members: set[int],
    own: dict[int, Intervals],
    steps: dict[int, int],
    sent: dict[tuple[int, int], float],
    flight: dict[int, int],
    number: dict[int, int],
) -> Turns | None:
    ranks = sorted(members)
    if any(rank not in own for rank in ranks) or len({steps[rank] for rank in ranks}) > 1:
        return None
    count = steps[ranks[0]]
    together = flatten(
        *(np.concatenate([getattr(own[r], e) for r in ranks]) for e in ("start", "end"))
    )
    messages = [n for (a, b), n in sent.items() if {number[a], number[b]} <= members]
    return Turns(
        tuple(ranks),
        tuple(float(own[r].total) / count for r in ranks),
        float(together.total) / count,
        float(np.median(messages)),
        max(flight[rank] for rank in ranks),
    )
