"""Time between ranks: who waited how long, what the transfers took, and how fast they were."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.device.collectives import bus_factor
from pinchpoint.analysis.ranks.matching import GroupName, Matching, Source, meets
from pinchpoint.analysis.ranks.own_time import JobFacts
from pinchpoint.analysis.ranks.summary import RankSummary, unpack
from pinchpoint.analysis.ranks.waits import GroupCollectives, Rendezvous, Split, split
from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Floats, Ints
from pinchpoint.trace.intervals import covered_before, flatten


@dataclass(frozen=True)
class KindOfCall:
    """Collectives that are alike: one group (or groups of one description), kind and size.

    Times are means or medians over the job; None where the recording does not say or nothing can
    be told. ``transfer_ns`` is the median of the shortest durations: what the last rank spent.
    """

    group: str
    kind: str
    bytes: int | None
    dtype: str | None
    ranks: int  # of one group
    groups: int
    kernel: str
    per_step: float  # of one rank
    transfer_ns: int | None
    best_transfer_ns: int | None
    waiting_ns: int | None  # mean of one call and rank
    exposed_waiting_ns_per_step: int | None  # mean over the ranks that take part
    exposed_transfer_ns_per_step: int
    algorithm_bytes_per_s: float | None
    bus_bytes_per_s: float | None
    best_bus_bytes_per_s: float | None
    numbers: tuple[int, ...]  # of its kinds in the job's table


@dataclass(frozen=True, eq=False)
class Communication:
    """Matrices have shape (ranks, steps): exposed time of the rank in the step."""

    waiting_ns: Floats  # for the last rank
    transfer_ns: Floats
    untold_ns: Floats  # one of both; the recordings cannot say which
    late_ns: Floats  # all waiting for the last rank, exposed or not
    was_last: Ints  # (ranks,): collectives in which the rank came last
    took_part: Ints  # (ranks,): collectives in which that could be told
    peer_of: Ints  # (ranks,): number of the group that the rank is compared in; -1 without one
    groups: tuple[GroupName, ...]
    kinds: tuple[KindOfCall, ...]  # most exposed time first


def communication(
    source: Source, facts: JobFacts, matching: Matching, found: Rendezvous
) -> Communication:
    """All exposed time between ranks; reads every summary once."""
    shape = (len(facts.ranks), len(facts.step_numbers))
    waiting, transfer, untold, late = np.zeros((4, *shape))
    was_last, took_part = np.zeros((2, shape[0]), np.int64)
    sums, took = np.zeros((4, len(found.kinds.known))), np.zeros(shape[0], np.int64)
    for rank, summary in enumerate(source()):
        step_of = _job_step(facts.step_numbers, unpack(summary.steps.number))
        took[rank] = (step_of >= 0).sum()
        parts = list(split(rank, summary, matching, found))
        late[rank] = _late(summary, parts, step_of, shape[1])
        for part in parts:
            if not len(part.at):
                continue
            weight = summary.calls.stride
            step = step_of[part.step]
            inside = step >= 0
            np.add.at(waiting[rank], step[inside], weight * part.exposed_waiting_ns[inside])
            for of, mine in ((transfer, inside & part.told), (untold, inside & ~part.told)):
                np.add.at(of[rank], step[mine], weight * part.exposed_transfer_ns[mine])
            was_last[rank] += int(part.was_last.sum())
            peers = found.groups[part.calls.group]
            took_part[rank] += int((peers.ranks[part.at] > 1).sum())
            kind = peers.kind[part.at][inside]
            for row, of_call in zip(
                sums,
                (
                    np.ones(len(inside)),
                    part.waiting_ns,
                    part.exposed_waiting_ns,
                    part.exposed_transfer_ns,
                ),
                strict=True,
            ):
                np.add.at(row, kind, weight * of_call[inside])
    return Communication(
        waiting,
        transfer,
        untold,
        late,
        was_last,
        took_part,
        _peers(shape[0], found),
        tuple(found.groups),
        _kinds(took, found, sums),
    )


def _late(summary: RankSummary, parts: list[Split], step_of: Ints, steps: int) -> Floats:
    """How long the rank stood in some collective and waited, in each step of the job; without a
    device, as far as the thread of its steps did."""
    start = unpack(summary.calls.start_ns)
    begin = np.concatenate([start[p.calls.at] for p in parts] or [start])
    waited = np.concatenate([p.waiting_ns for p in parts] or [np.zeros(len(start), np.int64)])
    if summary.device is None and parts:
        hidden = unpack(summary.calls.duration_ns) - unpack(summary.calls.exposed_ns)
        begin = begin + np.concatenate([hidden[p.calls.at] for p in parts])
        waited = np.concatenate([p.exposed_waiting_ns for p in parts])
    waiting = flatten(begin, begin + waited)
    low, high = unpack(summary.steps.start_ns), unpack(summary.steps.end_ns)
    inside = covered_before(waiting, high) - covered_before(waiting, low)
    out = np.zeros(steps)
    known = step_of >= 0
    out[step_of[known]] = np.minimum(summary.calls.stride * inside, high - low)[known]
    return out


def _job_step(job: Ints, own: Ints) -> Ints:
    """Position of each of the rank's steps among those of the job; -1 where it has none."""
    at = np.searchsorted(job, own)
    hit = at < len(job)
    hit[hit] = job[at[hit]] == own[hit]
    return np.where(hit, at, -1)


def _peers(ranks: int, found: Rendezvous) -> Ints:
    """For each rank the number of its largest group in which ranks meet; -1 without one."""
    peer_of = np.full(ranks, -1)
    size = np.zeros(ranks, np.int64)
    for number, (group, calls) in enumerate(found.groups.items()):
        members = np.array(found.members[group], np.int64)
        if len(members) < 2 or not (calls.ranks > 1).any():
            continue
        larger = members[size[members] < len(members)]
        peer_of[larger], size[larger] = number, len(members)
    return peer_of


@dataclass
class _Alike:
    """Kinds of calls that one row of the table stands for."""

    numbers: list[int]
    groups: set[GroupName]


def _kinds(took: Ints, found: Rendezvous, sums: Floats) -> tuple[KindOfCall, ...]:
    rows: dict[tuple[str, str, int | None, str | None, int], _Alike] = {}
    for (group, kind, size, dtype), number in found.kinds.known.items():
        ranks = group.size or len(found.members[group])
        key = (group.description or group.name, kind, size, dtype, ranks)
        alike = rows.setdefault(key, _Alike([], set()))
        alike.numbers.append(number)
        alike.groups.add(group)
    table = [_row(took, found, sums, key, alike) for key, alike in rows.items()]
    table.sort(
        key=lambda k: -((k.exposed_waiting_ns_per_step or 0) + k.exposed_transfer_ns_per_step)
    )
    return tuple(table)


def _row(
    took: Ints,
    found: Rendezvous,
    sums: Floats,
    key: tuple[str, str, int | None, str | None, int],
    alike: _Alike,
) -> KindOfCall:
    description, kind, size, dtype, ranks = key
    calls = [_of_kinds(found.groups[g], alike.numbers) for g in alike.groups]
    columns = [np.concatenate(c) for c in zip(*calls, strict=True)]
    took_part, shortest = columns
    # Of each rank only the steps that it recorded: it may have ended before the others.
    rank_steps = max(sum(int(took[[*found.members[g]]].sum()) for g in alike.groups), 1)
    met = (took_part > 1) & meets(kind)
    transfer = round(float(np.median(shortest[met]))) if met.any() else None
    best = int(shortest[met].min()) if met.any() else None
    count, waited, exposed_waiting, exposed_transfer = sums[:, alike.numbers].sum(axis=1).tolist()
    return KindOfCall(
        group=description,
        kind=kind,
        bytes=size,
        dtype=dtype,
        ranks=ranks,
        groups=len(alike.groups),
        kernel=found.kinds.kernel[alike.numbers[0]],
        per_step=count / rank_steps,
        transfer_ns=transfer,
        best_transfer_ns=best,
        waiting_ns=round(waited / max(count, 1)) if met.any() else None,
        exposed_waiting_ns_per_step=round(exposed_waiting / rank_steps) if met.any() else None,
        exposed_transfer_ns_per_step=round(exposed_transfer / rank_steps),
        algorithm_bytes_per_s=_rate(size, transfer),
        bus_bytes_per_s=_bus_rate(kind, ranks, size, transfer),
        best_bus_bytes_per_s=_bus_rate(kind, ranks, size, best),
        numbers=tuple(alike.numbers),
    )


def _of_kinds(calls: GroupCollectives, numbers: list[int]) -> tuple[NDArray[np.int32], Ints]:
    mine = np.isin(calls.kind, numbers)
    return calls.ranks[mine], calls.shortest_ns[mine]


def _rate(size: int | None, transfer_ns: int | None) -> float | None:
    return size / transfer_ns * 1e9 if size and transfer_ns else None


def _bus_rate(kind: str, ranks: int, size: int | None, transfer_ns: int | None) -> float | None:
    rate = _rate(size, transfer_ns)
    factor = float(bus_factor(np.array([kind]), np.array([ranks]))[0])
    return None if rate is None or np.isnan(factor) else rate * factor
