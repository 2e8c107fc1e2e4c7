"""One rank arrives late at collectives, and the others wait for it.

## What it looks for
Ranks whose own time of a step (without waiting for anybody) is longer than that of their peers.
They come last to collectives and have the shortest ones; the others wait inside theirs and look
slow. If another rank is late in each step, the steps and what held them up are named. One rank's
recording shows waiting, not who is waited for: this is answered over all ranks, by
`pinchpoint ranks` or by `pinchpoint diagnose` with the files of all ranks. Host time that recording
itself may have added is not held against a rank; device work beyond all that its peers need is.
Where other programs took the cores, or ranks took each other's and the late one did no more over
the whole run, recorded times tell who got one. Then looks at the whole run are asked at which
function a rank was on a core, or asleep, for longer than its peers can have been: bounds of 95 %
must not touch. A device on which the same kernels take a few per cent longer is as devices of one
kind are, and no finding. Sizes of inputs no other program changes: a rank that is given more than
its peers in each recorded step, and comes last or does more over the whole run, is named by them.

## Why it matters
A synchronous job runs at the pace of its slowest rank.

## How to fix it
Find what the late rank did just before (data, a slow kernel, clocks, garbage collection), and fix
that; or balance the work. Ranks that only send to each other and receive are stages of a pipeline,
as a rule: what one has more there is shared out by giving layers of it to others.

## When to ignore it
Lateness that comes once in many steps. If it only changes from rank to rank, every step is still as
long as its longest share.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pinchpoint.analysis.device.collectives import collectives
from pinchpoint.analysis.mean.stacks import names_a_call
from pinchpoint.analysis.statistics import mean, median_of_ranks
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import ALL_RANKS, Record
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

if TYPE_CHECKING:
    from pinchpoint.analysis.ranks.inputs import LargerInput
    from pinchpoint.analysis.ranks.job import Job
    from pinchpoint.analysis.ranks.own_places import OwnPlace


RULE = Rule(
    needs=("device_ops",),
    record=ALL_RANKS,
    looks_at="job",
    confirm="record the job again after the fix: pinchpoint ranks DIR",
)
_FEWEST_RANKS = 2  # somebody is late only beside somebody else
# Of the collectives: a rank that is given more in the few steps with shapes is last in all of them.
_LAST_RATIO = 0.8
# Of the time on a core: ranks that do the same differed by up to 9 % (2 to 4 ranks on 2 CPUs, load
# 2 to 4, four programs of 60 to 120 steps).
_MORE_RATIO = 1.15
_NAMED_STEPS = 3  # in a sentence; more are counted


def check(trace: Trace) -> Iterator[Found]:
    """Declines for one rank of several; clear where there are no collectives."""
    if collectives(trace) is not None:
        raise NotChecked("one rank cannot tell who is late")
    yield from ()


def check_job(job: "Job") -> Iterator[Found]:
    """The ranks that hold up the others again and again, or the steps that somebody held up."""
    if int((job.over.peer_of >= 0).sum()) < _FEWEST_RANKS:
        raise NotChecked("no collectives that could be matched between ranks")
    if job.late.stragglers and (ratio := _as_devices_differ(job)) is not None:
        raise NotChecked(
            f"the same kernels take {ratio:.2f} times as long on the rank that comes last, and"
            " devices of one kind differ by as much by themselves",
            Record("the job with the ranks' devices changed over: CUDA_VISIBLE_DEVICES=1,0"),
        )
    if job.late.cost_ns or job.late.stragglers:
        yield _always(job) if job.late.stragglers else _now_and_then(job)
        return
    more, given = _by_looks(job), _by_inputs(job)
    if given is not None and (more is None or _at_what_is_given(job, more, given)):
        yield _given_more(job, *given)
    elif more is not None:
        yield _doing_more(job, more)
    elif _undecided(job):
        alone = any(rank.contended for rank in job.facts.ranks)
        raise NotChecked(
            f"{_who_took_cores(job)} while this was recorded: who is late by itself does not show",
            Record(
                "the same on a machine of its own"
                if alone
                else "the same with no more threads in all ranks than cores"
            ),
        )


# Devices of one model under one load: 8 % between them on average, in clusters of several machines
# (Sinha et al., Not All GPUs Are Created Equal, SC 2022); 7 % between two H200 of one host.
_DEVICES_DIFFER_RATIO = 1.1


def _as_devices_differ(job: "Job") -> float | None:
    """By what the late ranks' devices are slower, where that is their reason and no more than what
    devices of one kind differ by."""
    from pinchpoint.analysis.ranks.late_causes import SLOW_DEVICE

    ratios = []
    for one in job.late.stragglers:
        doing = next((late.doing for late in job.late_ranks if late.rank == one.rank), ())
        if not doing or doing[0].subject != SLOW_DEVICE or doing[0].slower_ratio is None:
            return None
        ratios.append(doing[0].slower_ratio)
    return max(ratios) if max(ratios) < _DEVICES_DIFFER_RATIO else None


def _at_what_is_given(job: "Job", more: "OwnPlace", given: "tuple[int, LargerInput]") -> bool:
    """Whether a rank does more at a place where its peers are as well, and is given more to do: it
    works there on more of the same."""
    return more.rank == given[0] and more.peers_ns > 0


def _undecided(job: "Job") -> bool:
    """Whether ranks waited for cores, so that nothing was held against them."""
    return any(rank.contended for rank in job.facts.ranks) or bool(
        np.isinf(job.over.doubt_ns).any()
    )


def _who_took_cores(job: "Job") -> str:
    if any(rank.contended for rank in job.facts.ranks):
        return "other programs took the cores of the ranks"
    waited = max(rank.no_core_ratio or 0.0 for rank in job.facts.ranks)
    return f"the ranks waited for a core, one for {100 * waited:.0f} % of the time"


def _by_looks(job: "Job") -> "OwnPlace | None":
    """What a rank surely does beyond its peers, where recorded times cannot tell."""
    step_ns = mean(median_of_ranks(job.facts.window_ns))
    from pinchpoint.analysis.ranks.stragglers import LEAST_EXCESS_RATIO

    enough = LEAST_EXCESS_RATIO * step_ns
    from pinchpoint.analysis.ranks.own_places import beyond_peers

    return next((p for p in beyond_peers(job.facts.places) if p.sure_ns >= enough), None)


def _by_inputs(job: "Job") -> "tuple[int, LargerInput] | None":
    """The rank that is given more than its peers in each step, and comes last most of the time."""
    from pinchpoint.analysis.ranks.inputs import always_larger_input
    from pinchpoint.analysis.ranks.stragglers import LEAST_EXCESS_RATIO

    inputs = job.facts.inputs
    waits = mean(job.between.waiting_ns[job.facts.usable])
    if waits < LEAST_EXCESS_RATIO * mean(median_of_ranks(job.facts.window_ns)):
        return None
    for rank, mine in inputs.items():
        peers = [inputs.get(p, ()) for p in job.peers(rank).tolist()]
        holds = _is_last(job, rank) or _does_more(job, rank)
        if holds and (given := always_larger_input(mine, peers)) is not None:
            return rank, given
    return None


def _is_last(job: "Job", rank: int) -> bool:
    last, of = job.between.was_last[rank], job.between.took_part[rank]
    return bool(last >= _LAST_RATIO * max(int(of), 1))


def _does_more(job: "Job", rank: int) -> bool:
    """Whether the rank's thread does more of its own over the whole run than its peers'."""
    ranks = job.facts.ranks
    mine = ranks[rank].own_ratio
    peers = [ranks[p].own_ratio for p in job.peers(rank).tolist()]
    known = [ratio for ratio in peers if ratio is not None]
    return mine is not None and bool(known) and mine >= _MORE_RATIO * float(np.median(known))


def _given_more(job: "Job", rank: int, given: "LargerInput") -> Found:
    from pinchpoint.analysis.ranks.accounting import scaling
    from pinchpoint.analysis.ranks.late_causes import UNEVEN_INPUTS, share_in_words
    from pinchpoint.diagnosis.rules.communication._rank_delays import FIXES, waiting_of_others

    number, at = job.facts.ranks[rank].rank, given.at
    where = Location(at.file, at.line, at.function, operator=at.operator)
    does = "comes last" if _is_last(job, rank) else "does more over the whole run"
    # Shared out evenly, each step takes the mean of the ranks: what they wait for in the mean.
    # Where others took the cores, recording's cost cannot be told from waiting: none is taken off.
    lost = scaling(job)
    waits = round(mean(job.between.waiting_ns[job.facts.usable]))
    gain = max(lost.waiting_ns_per_step if lost is not None else 0, waits, _waits_by_looks(job))
    return Found(
        summary=f"Rank {number} {does}, with {share_in_words(given)}; they come in at {where}",
        evidence=(
            Evidence(
                f"input of rank {number} over that of its peers", round(given.ratio, 2), "ratio"
            ),
            waiting_of_others(job, [rank]),
        ),
        cost_ns_per_step=gain,
        saving_ns_per_step=(gain // 2, gain),
        location=where,
        confidence="medium",
        fix=FIXES[UNEVEN_INPUTS],
    )


def _waits_by_looks(job: "Job") -> int:
    """What ranks waited more than the one that waits least, in the mean, by looks at the whole run:
    neither on a core, nor for one, nor asleep of their own will. Few steps are recorded, and those
    of a corpus that is sorted are all of its beginning."""
    ranks = [rank for rank in job.facts.ranks if rank.own_ratio is not None]
    waits = [max(1.0 - (rank.own_ratio or 0) - (rank.no_core_ratio or 0), 0.0) for rank in ranks]
    if len(waits) < _FEWEST_RANKS or any(rank.no_core_ratio is None for rank in ranks):
        return 0
    more = sum(waits) / len(waits) - min(waits)
    return round(more * mean(median_of_ranks(job.facts.window_ns)))


def _doing_more(job: "Job", more: "OwnPlace") -> Found:
    place, number = more.place, job.facts.ranks[more.rank].rank
    where = Location(place.file, place.line, place.function)
    from pinchpoint.diagnosis.rules.communication._rank_delays import waiting_of_others

    others = waiting_of_others(job, [more.rank])
    # As much as the others wait, in recorded steps; looks count in steps as they are said. Without
    # cores enough a place takes what it computes and what it waits for a core there.
    in_recorded = [
        round(ns / job.said_ratio) for ns in (more.sure_ns, more.more_ns, *more.there_ns)
    ]
    least, likely = (max(in_recorded[at], in_recorded[at + 2]) for at in (0, 1))
    cost = min(likely, int(others.value)) or likely
    # Ranks that hand pieces on to each other share the work: what one has more stays, shared out.
    stages = _hands_pieces_on(job)
    count = len(job.facts.ranks)
    even = (count - 1) / count if stages else 1.0
    at = f" at {place.doing}" if names_a_call(place.doing) else ""
    peers = duration(more.peers_ns) if more.peers_ns else "nothing"
    return Found(
        summary=f"Rank {number} spends {duration(place.ns)} of a step in {where}{at}, its peers"
        f" {peers}; {_who_took_cores(job)}, so that looks at the whole run tell this",
        evidence=(
            Evidence(f"rank {number} in {place.function}", place.ns, "ns per step"),
            Evidence("of it, at least", place.least_ns, "ns per step"),
            Evidence("its peers there", more.peers_ns, "ns per step"),
            others,
        ),
        cost_ns_per_step=cost,
        saving_ns_per_step=(round(even * min(least, cost)), cost),
        likely_saving_ns=round(even * cost),
        location=where,
        confidence="medium",
        fix=_even_stages(job, number) if stages else _NOT_ITS_PEERS,
    )


_NOT_ITS_PEERS = (
    "Find why that rank does this and its peers do not; share it out, or do it outside of the step"
)


def _hands_pieces_on(job: "Job") -> bool:
    """Whether all that ranks exchange goes from one to another, both ways: as between stages of a
    pipeline, and never all of them together, as of gradients."""
    from pinchpoint.analysis.ranks.matching import one_end

    kinds = {kind for _, kind, _, _ in job.found.kinds.known}
    return len(kinds) > 1 and all(one_end(kind) for kind in kinds)


def _even_stages(job: "Job", number: int) -> str:
    """Whose work is more, by looks at the whole run."""
    known = [(one.rank, one.own_ratio) for one in job.facts.ranks if one.own_ratio is not None]
    shares = ", ".join(f"rank {rank} {100 * ratio:.0f} %" for rank, ratio in known)
    own = f" (at work of their own: {shares} of the run)" if shares else ""
    return (
        f"If the ranks are stages of a pipeline, its split is uneven{own}: give layers of rank"
        f" {number} to the others until all have as much; an output head with its loss counts as"
        " several layers"
    )


def _always(job: "Job") -> Found:
    named = job.late.stragglers
    ranks = [s.rank for s in named]
    from pinchpoint.diagnosis.rules.communication._rank_delays import (
        MOST_NAMED,
        at_place,
        doing_of,
        evidence_of,
        fix_for,
        place_of,
        ranks_in_words,
        reasons_in_words,
        saving,
        since_in_words,
        waiting_of_others,
    )

    doing = doing_of(job, ranks[0])
    who = ranks_in_words(job, ranks)
    holds = "hold" if len(ranks) > 1 else "holds"
    return Found(
        summary=f"{who[0].upper()}{who[1:]} {holds} up the others by"
        f" {duration(job.late.cost_ns)} a step{since_in_words(job, named[0])}"
        f"{reasons_in_words(job, ranks)}{at_place(job, ranks)}",
        evidence=(
            *(fact for rank in ranks[:MOST_NAMED] for fact in evidence_of(job, rank)),
            waiting_of_others(job, ranks),
        ),
        cost_ns_per_step=job.late.cost_ns,
        saving_ns_per_step=saving(job, ranks),
        location=place_of(doing),
        fix=". ".join(dict.fromkeys(fix_for(doing_of(job, rank)) for rank in ranks[:MOST_NAMED])),
    )


def _who_is_late(job: "Job") -> str:
    """Of a few steps one rank may hold up each, which is too little to blame it for all."""
    late, steps = job.late.incidents, len(job.facts.step_numbers)
    if len({one.rank for one in late}) > 1:
        return "Ranks take turns at being late"
    return f"Rank {job.facts.ranks[late[0].rank].rank} is late in {len(late)} of {steps} steps"


def _now_and_then(job: "Job") -> Found:
    worst = job.late.incidents
    from pinchpoint.diagnosis.rules.communication._rank_delays import (
        doing_of,
        evidence_of,
        fix_for,
        place_of,
        saving_of_even_steps,
    )

    doing = doing_of(job, worst[0].rank)
    numbers = job.facts.step_numbers
    steps = [
        Evidence(
            f"step {int(numbers[i.step])} waits for rank {job.facts.ranks[i.rank].rank}",
            i.excess_ns,
            "ns",
        )
        for i in worst[:_NAMED_STEPS]
    ]
    reason = f"; the worst time: {doing[0].what}" if doing else ""
    cost = job.late.cost_ns
    return Found(
        summary=f"{_who_is_late(job)}, {duration(job.late.cost_ns)} a step{reason}",
        evidence=(*steps, *evidence_of(job, worst[0].rank)[1:]),
        cost_ns_per_step=job.late.cost_ns,
        saving_ns_per_step=saving_of_even_steps(job, doing) or (cost // 2, cost),
        location=place_of(doing),
        confidence="medium",
        fix=fix_for(doing),
    )
