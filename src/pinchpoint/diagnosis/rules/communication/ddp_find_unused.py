"""A needless search for unused parameters in each step.

## What it looks for
The search that `DistributedDataParallel(find_unused_parameters=True)` makes between forward and
backward, where a recording names it; the flag itself is in no trace. A gap between forward and
backward is no evidence of it, so where the search is not named it is not checked.

## Why it matters
The search walks the autograd graph on the host in each step, and gradients wait for its end.

## How to fix it
Turn the flag off, or use `static_graph=True` where the set of unused parameters never changes.

## When to ignore it
Models that leave different parameters unused from step to step.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.evidence.host_spans import host_spans, named, without
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=Record("the flag find_unused_parameters, or DDP's warning in the log of the run"),
    confirm='pinchpoint bench ab -- "torchrun train.py" "torchrun train_fixed.py"',
)

_SEARCH = ("search_unused_parameters", "_find_tensors", "prepare_for_backward")
_DDP = "DistributedDataParallel"


def check(trace: Trace) -> Iterator[Found]:
    """DDP's search, where it is recorded."""
    if not any(_DDP in name for name in trace.names):
        return
    searching = named(trace, lambda name: any(word in name for word in _SEARCH))
    spans = host_spans(trace, searching, "searching for unused parameters")
    if spans is None:
        raise NotChecked("the flag find_unused_parameters is in no trace")
    yield Found(
        summary=f"DDP searches for unused parameters, {duration(spans.ns_per_step)} a step",
        evidence=spans.evidence,
        cost_ns_per_step=spans.ns_per_step,
        changes=without(trace, spans.rows),
        location=spans.place,
        fix="Turn find_unused_parameters off, or use static_graph=True",
    )
