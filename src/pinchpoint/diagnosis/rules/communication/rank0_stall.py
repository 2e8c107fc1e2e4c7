"""Rank 0 does extra host work, and all others wait for it.

## What it looks for
Collectives to which rank 0 alone comes late again and again, after host work that the others do
not have: logging, evaluation, checkpoints. This is answered over all ranks, by `pinchpoint ranks`
or by `pinchpoint diagnose` with the files of all ranks. A rank 0 whose device has more work, or
whose lateness changes from rank to rank, is straggler-rank.

## Why it matters
What only rank 0 does costs every rank the same time.

## How to fix it
Move it off the path (a thread, a process, asynchronous saving), or share it among ranks.

## When to ignore it
At rare steps.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pinchpoint.analysis.device.collectives import collectives
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import ALL_RANKS
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

if TYPE_CHECKING:
    from pinchpoint.analysis.ranks.job import Job


RULE = Rule(
    needs=("device_ops",),
    record=ALL_RANKS,
    looks_at="job",
    parent="straggler-rank",
    confirm="record the job again after the fix: pinchpoint ranks DIR",
)
_FEWEST_RANKS = 2  # somebody is late only beside somebody else


def check(trace: Trace) -> Iterator[Found]:
    """Declines for one rank of several; clear where there are no collectives."""
    if collectives(trace) is not None:
        raise NotChecked("one rank cannot tell who is late")
    yield from ()


def check_job(job: "Job") -> Iterator[Found]:
    """Rank 0 as the only straggler, with a reason on its host."""
    if int((job.over.peer_of >= 0).sum()) < _FEWEST_RANKS:
        raise NotChecked("no collectives that could be matched between ranks")
    named = job.late.stragglers
    if len(named) != 1 or job.facts.ranks[named[0].rank].rank != 0:
        return
    from pinchpoint.diagnosis.rules.communication._rank_delays import (
        by_the_host,
        doing_of,
        evidence_of,
        place_of,
        saving,
        since_in_words,
        waiting_of_others,
    )

    doing = doing_of(job, named[0].rank)
    if not by_the_host(doing):
        return
    yield Found(
        summary=f"All ranks wait {duration(job.late.cost_ns)} a step for what only rank 0 does"
        f"{since_in_words(job, named[0])}: {doing[0].what}",
        evidence=(*evidence_of(job, named[0].rank), waiting_of_others(job, [named[0].rank])),
        cost_ns_per_step=job.late.cost_ns,
        saving_ns_per_step=saving(job, [named[0].rank]),
        location=place_of(doing),
        fix="Take it off the path of the step (a thread, a process, rarely), or share it",
    )
