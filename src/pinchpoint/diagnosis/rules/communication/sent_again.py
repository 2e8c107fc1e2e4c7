"""A rank sends others the same values in each step.

## What it looks for
`pinchpoint run` takes sums over the bits of what a rank of a job on CPUs is about to send, in six
steps after its recording (of a job of few long steps, before it). Told are broadcasts and scatters
of this rank's own, and sends to one other rank, of 64 KiB and more, that had the same bits in each
of five steps and more; with the time of the step that passes in them.

## Why it matters
Whoever received it once has it. Exchanges of a table, of weights that are frozen, or of buffers
that do not change take as long as those of what is new, and all ranks meet in them.

## How to fix it
Send it once, before the loop, and again when it has changed: the rank that changes it knows.

## When to ignore it
Where it changes now and then, and nobody knows beforehand when: a number that says whether it has
is quicker than the whole.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.memory.shortage import size
from pinchpoint.analysis.replay import RemoveHostTime
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.diagnosis.evidence.host_collectives import (
    HostCalls,
    issued_calls,
    shortest_at_place,
)
from pinchpoint.diagnosis.evidence.vain_work import rows_of, watched
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import WATCHED_RUN
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints
from pinchpoint.trace.durations import duration
from pinchpoint.trace.run_values import VainWork

RULE = Rule(
    needs=("host_ops",),
    record=WATCHED_RUN,
    parent="broadcast-in-steps",
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "torchrun train.py" "torchrun train_fixed.py"',
)


def check(trace: Trace) -> Iterator[Found]:
    """Messages of each place that were the same before."""
    values = watched(trace)
    noted = [one for one in (values.work or ()) if one.kind == "sent"] if values else []
    if not noted or not len(judged_steps(trace)):
        return
    calls = issued_calls(trace)
    if calls is None:
        raise NotChecked("which of the backend's calls were issued where does not show")
    for one in noted:
        mine = np.isin(calls.issued, rows_of(trace, one.operations))
        if mine.any():
            yield _found(trace, one, calls.made.of(mine))


def _found(trace: Trace, one: VainWork, calls: HostCalls) -> Found:
    place = Location(*one.places[0]) if one.places else None
    took_ns = round(per_step(trace, int(calls.alone_ns.sum())))
    sent_bytes = round(per_step(trace, int(np.maximum(calls.bytes, 0).sum())))
    times = per_step(trace, len(calls.rows))
    what = size(sent_bytes) if sent_bytes else "tensors"
    return Found(
        summary=(
            f"This rank sends {what} to others{f' in {place}' if place else ''} with the same bits"
            f" in each step: {duration(took_ns)} a step pass in that"
        ),
        evidence=(
            Evidence("messages that are the same in each step", round(times, 2), "per step"),
            Evidence("in them, waiting included", took_ns, "ns per step"),
            *((Evidence("of these", sent_bytes, "bytes per step"),) if sent_bytes else ()),
        ),
        cost_ns_per_step=took_ns,
        changes=(_without(trace, calls, shortest_at_place(trace, calls)),),
        at_best=(_without(trace, calls, calls.alone_ns),),
        location=place,
        confidence="medium",
        fix="Send it once before the loop, and again only when it has changed",
    )


def _without(trace: Trace, calls: HostCalls, ns: Ints) -> RemoveHostTime:
    host = trace.host_ops
    assert host is not None
    end_ns = host.end_ns[calls.rows]
    return RemoveHostTime(end_ns - ns, end_ns)
