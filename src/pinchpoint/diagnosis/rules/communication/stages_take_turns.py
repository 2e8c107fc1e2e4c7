"""Ranks hand pieces of a batch on to each other, and never compute at the same time.

## What it looks for
Ranks that send each other several messages in each step, in both directions, as the stages of a
pipeline do with micro-batches and their gradients. On the clock that they share, the time in which
more than one of them works is next to nothing, although each has its part of the work; and never is
a second message on its way before the answer to the first is there. Few micro-batches in a good
schedule are no such thing: then stages work together in between, and wait at the ends of the step.
Neither is one stage that has most of the work.

Of two ranks, also one message each way in a step: the first sends, and waits for as long as the
second one takes from receiving to sending, and so does the second one. Then all of the batch is one
piece. Ranks that both send before they receive exchange what they have, and are no stages.

## Why it matters
Each stage waits while another works: a step takes as long as on one device, and the transfers on
top.

## How to fix it
Cut the batch into micro-batches, and send each on as soon as it is ready. Let each stage begin
further micro-batches before the gradient of the first is back. In a schedule of one forward, one
backward (Narayanan et al., PipeDream, 2019) stage *s* of *p* begins with *p - s - 1* forwards,
counted from 0, so that the first has *p* in flight. With *k* micro-batches a step then takes
*(k + p - 1) / k* times what the busiest stage works (Huang et al., GPipe, 2019).

## When to ignore it
Where memory has room for the activations of one micro-batch only.

Of backends of the host (gloo) several messages a step, or more than two ranks, are not checked:
their recordings do not say whom a message is for.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pinchpoint.analysis.device.collectives import collectives
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import ALL_RANKS, Record
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

if TYPE_CHECKING:
    from pinchpoint.analysis.ranks.job import Job
    from pinchpoint.analysis.ranks.one_piece import OnePiece
    from pinchpoint.analysis.ranks.turns import Turns

RULE = Rule(
    needs=("device_ops",),
    record=ALL_RANKS,
    looks_at="job",
    confirm="record the job again after the fix: pinchpoint ranks DIR",
)
# Ranks at work at the same time, while any is. Two stages of a good schedule have 2k / (k + 1) of
# k micro-batches, so 1.33 of two; updates of weights, which all do at once, are a few per cent.
MOST_AT_ONCE = 1.15
FEWEST_MESSAGES = 2  # a step: with a single one nothing can be done meanwhile
LEAST_SHARE = 0.5  # of an even share of the work; with less a stage waits for the one that has it
# Micro-batches of the batch: at least, likely, at most. Smaller ones run slower, which limits them.
FEW_PIECES, SOME_PIECES, MANY_PIECES = 2, 4, 8
LEAST_WON_RATIO = 0.75  # of the ideal: micro-batches differ, and more of them in flight are slower


def check(trace: Trace) -> Iterator[Found]:
    """Declines for one rank of several; clear where there are no collectives."""
    if collectives(trace) is not None:
        raise NotChecked("one rank does not show when the others work")
    yield from ()


def check_job(job: "Job") -> Iterator[Found]:
    """Stages of which only one works at a time."""
    if job.one_piece is not None and (said := _of_one_piece(job, job.one_piece)) is not None:
        yield said
        return
    if not job.turns and _sends_to_unknown(job):
        raise NotChecked(
            "the recordings do not say which rank a message of this backend goes to, so that what"
            " each does meanwhile cannot be laid side by side",
            Record("the same on devices: NCCL's transfers say between which ranks they are"),
        )
    yield from (_found(job, one) for one in job.turns if _takes_turns(one))


def _sends_to_unknown(job: "Job") -> bool:
    """Whether ranks send and receive in their steps, each call seen from one end."""
    from pinchpoint.analysis.ranks.matching import one_end

    kinds = {kind for _, kind, _, _ in job.found.kinds.known}
    return any(one_end(kind) for kind in kinds)


def _takes_turns(stages: "Turns") -> bool:
    even = sum(stages.own_ns) / len(stages.ranks)
    return (
        stages.messages >= FEWEST_MESSAGES
        and stages.in_flight == 1
        and stages.at_once <= MOST_AT_ONCE
        and min(stages.own_ns) >= LEAST_SHARE * even
    )


def _of_one_piece(job: "Job", stages: "OnePiece") -> Found | None:
    """None where one of both has nearly all of the work, or little is waited."""
    busiest, other = max(stages.own_ns), min(stages.own_ns)
    if other < LEAST_SHARE * (busiest + other) / 2:
        return None
    least, likely, most = (
        max(round(job.step_ns - busiest * (1 + 1 / pieces)), 0)
        for pieces in (FEW_PIECES, SOME_PIECES, MANY_PIECES)
    )
    if not likely:
        return None
    first, second = (job.facts.ranks[rank].rank for rank in stages.ranks)
    return Found(
        summary=f"Ranks {first} and {second} never work at the same time: all of the batch is one"
        f" piece, and each waits for the other one's answer, {duration(round(stages.waited_ns[0]))}"
        f" and {duration(round(stages.waited_ns[1]))} of a step of {duration(round(job.step_ns))}",
        evidence=(
            Evidence("messages one way", 1.0, "per step"),
            Evidence(
                f"rank {first} waits for its answer", round(stages.waited_ns[0]), "ns per step"
            ),
            Evidence(
                f"rank {second}, from receiving to sending",
                round(stages.answer_ns[1]),
                "ns per step",
            ),
            *(
                Evidence(f"own work of rank {rank}", round(ns), "ns per step")
                for rank, ns in zip((first, second), stages.own_ns, strict=True)
            ),
        ),
        cost_ns_per_step=most,
        saving_ns_per_step=(least, most),
        likely_saving_ns=likely,
        leaves_ns_per_step=round(min(busiest, job.step_ns)),
        fix=f"Cut the batch into more micro-batches, {SOME_PIECES} to {MANY_PIECES}, and send each"
        " on as soon as it is ready, so that one rank works on one while the other has the next"
        " (torch.distributed.pipelining has such schedules)",
        hint="for part in batch.chunk(4): isend(stage(part))  # gradients add up over the parts",
    )


def _found(job: "Job", stages: "Turns") -> Found:
    count, pieces = len(stages.ranks), round(stages.messages)
    busiest = max(stages.own_ns)
    ideal = busiest * (pieces + count - 1) / pieces
    won = max(round(job.step_ns - ideal), 0)
    who = ", ".join(str(job.facts.ranks[rank].rank) for rank in stages.ranks)
    both = sum(stages.own_ns) - stages.together_ns
    return Found(
        summary=f"Ranks {who} never work at the same time: each sends one of {pieces} pieces of the"
        f" step on, and waits for its answer before it begins the next; the busiest works"
        f" {duration(round(busiest))} of a step of {duration(round(job.step_ns))}",
        evidence=(
            Evidence("ranks at work at once, while any is", round(stages.at_once, 2), "ratio"),
            Evidence("in which several work", round(both), "ns per step"),
            Evidence("messages one way", stages.messages, "per step"),
            Evidence("on their way at once, at most", stages.in_flight, "count"),
            *(
                Evidence(f"own work of rank {job.facts.ranks[rank].rank}", round(ns), "ns per step")
                for rank, ns in zip(stages.ranks, stages.own_ns, strict=True)
            ),
        ),
        cost_ns_per_step=won,
        saving_ns_per_step=(round(LEAST_WON_RATIO * won), won),
        leaves_ns_per_step=round(min(ideal, job.step_ns)),
        fix=f"Let the first stage have {count} pieces in flight: begin stage s of {count} with"
        f" {count} - s - 1 forwards before its first backward",
    )
