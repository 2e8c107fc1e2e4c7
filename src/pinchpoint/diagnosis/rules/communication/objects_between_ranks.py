"""Ranks exchange Python objects in each step.

## What it looks for
Calls of torch's collectives for objects (`all_gather_object`, `gather_object`,
`broadcast_object_list`, `scatter_object_list`) inside the steps, as Python stacks show them, in
every second step or more often. What they take by themselves counts: packing, unpacking and
copying, not the wait for the other ranks, which moves to the next collective. Where they are a
quarter or more of what the program's function around them takes, that function is what may be won
at best: it makes the objects and reads them. Without Python stacks it is not checked.

## Why it matters
Each rank pickles what it has, sends its length, then the bytes, padded to the longest, and
unpickles what all others sent. Lists and dictionaries are made of tensors number by number before,
and gone through in Python after.

## How to fix it
Reduce what is wanted where it is: counts and sums in one small `all_reduce`. Values of one shape go
as tensors (`all_gather_into_tensor`), padded where lengths differ. Objects only rarely, or to one
rank.

## When to ignore it
Where few small objects are exchanged at rare steps.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.source_lines import places
from pinchpoint.analysis.replay import RemoveHostTime
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.diagnosis.evidence.host_spans import host_spans, how_often
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.intervals import Intervals, flatten, subtract
from pinchpoint.trace.names import rows_named

RULE = Rule(
    needs=("host_ops",),
    record=STACKS,
    parent="host-hotspot",
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "torchrun train.py" "torchrun train_fixed.py"',
)

_OBJECTS = regex(
    r"^torch/distributed/distributed_c10d\.py\(\d+\): "
    r"(all_gather_object|gather_object|broadcast_object_list|scatter_object_list)$"
)
EACH_STEP_RATIO = 0.5  # of one a step: what comes more rarely is an evaluation, and wanted
# Of the time of a function: what makes the objects and reads them takes more than to exchange them
# (three quarters of it in a metric of lists), and a whole training step is not made for that.
MUCH_RATIO = 0.25


def check(trace: Trace) -> Iterator[Found]:
    """Collectives for objects in the steps."""
    host = trace.host_ops
    if host is None:
        return
    calls = rows_named(trace, host, lambda name: bool(_OBJECTS.search(name)))
    calls &= host["thread"] == steps(trace).thread
    spans = host_spans(trace, calls, "collectives for objects, waits included")
    if spans is None or spans.count < EACH_STEP_RATIO:
        return
    waits = _waits(trace)
    own = subtract(_intervals(trace, spans.rows), waits)
    own_ns = round(per_step(trace, own.total))
    around = subtract(_around(trace, spans.rows), waits)
    at_best = around if own.total >= MUCH_RATIO * around.total else own
    yield Found(
        summary=(
            f"Ranks exchange Python objects{spans.where}, {how_often(trace, spans)}: packing,"
            f" unpacking and copying take {duration(own_ns)} of each recorded step"
        ),
        evidence=(
            *spans.evidence,
            Evidence("of it, without waits", own_ns, "ns per step"),
            Evidence(
                "the function that makes and reads them",
                round(per_step(trace, around.total)),
                "ns per step",
            ),
        ),
        cost_ns_per_step=round(per_step(trace, at_best.total)),
        changes=(RemoveHostTime(own.start, own.end),),
        at_best=(RemoveHostTime(at_best.start, at_best.end),),
        location=spans.place,
        confidence="medium",
        fix="Reduce counts and sums in one all_reduce, or gather tensors of one shape; exchange"
        " objects rarely",
    )


def _intervals(trace: Trace, rows: Rows) -> Intervals:
    host = trace.host_ops
    assert host is not None
    return flatten(host["start_ns"][rows], host.end_ns[rows])


def _around(trace: Trace, rows: Rows) -> Intervals:
    """The calls of the program's functions from which these come; of none, these."""
    host = trace.host_ops
    assert host is not None
    frame = np.unique(places(trace).frame[rows])
    mine = np.isin(host["name"], frame[frame >= 0]) & (host["kind"] == HostKind.PYTHON)
    mine &= host["thread"] == steps(trace).thread
    found = np.flatnonzero(mine)
    return _intervals(trace, found if len(found) else rows)


def _waits(trace: Trace) -> Intervals:
    """When the thread of the steps waited for another thread or process."""
    host = trace.host_ops
    assert host is not None
    kinds = activity(trace)[: len(host)]
    waiting: Mask = np.isin(kinds, (GapKind.WAIT, GapKind.HOST_COLLECTIVE))
    waiting &= host["thread"] == steps(trace).thread
    return _intervals(trace, np.flatnonzero(waiting))
