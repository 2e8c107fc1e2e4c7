"""Each step goes through all that the steps before it have left.

## What it looks for
Operators on the device, or of a program without one, that are given a tensor that is longer in each
recorded step than in the one before, by the same number of elements, and at least 16 times as long
as that: what all steps so far have left, joined and gone through again. Needs three whole steps
with shapes; what later steps take beyond these is a matter of `growing-steps`. Where products or
attention grow with it, as with the cache of a model that generates, the history is what the step is
about, and nothing is said. On a CPU a call of a library that is a quarter such operators, and calls
nothing of the program, is for the history as a whole: all of it may be won.

## Why it matters
The work of a step grows with its number, and that of a run with its square. What one recording
shows is the state after so many steps; later it is more.

## How to fix it
Compute it only where it is used (every 100 steps, say, with the line that is written), or go on
from the result of the step before: sums, counts, a histogram of fixed size in place of a sort of
all values.

## When to ignore it
Where the whole history is needed in each step, and the run is short.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import structs

from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.replay import Change, ScaleDeviceOps, ScaleHostSpans
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.growing import Growing, growing_calls, growing_on_cpu
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import CPU_AND_DEVICE, SHAPES_AND_STACKS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=SHAPES_AND_STACKS, advice=NO_HINT)


def check(trace: Trace) -> Iterator[Found]:
    """Operators whose input grows from step to step."""
    if computes_on_cpu(trace):
        yield from _on_cpu(trace)
        return
    ops = trace.device_ops
    if ops is None:
        raise NotChecked("the recording has no device ops", CPU_AND_DEVICE)
    launched = launched_calls(trace)
    calls, which = launched.calls, launched.which
    growing, ratio = growing_calls(calls, which, _step_of_ops(trace))
    work = device_work(trace, ratio[which] < 1, "going through it") if growing else None
    if work is None:
        return
    left = ratio[which[work.rows]]
    share = float(np.average(left, weights=np.maximum(ops["duration_ns"][work.rows], 1)))
    change = ScaleDeviceOps(work.rows, left, flops_left=share, bytes_left=share)
    yield _found(calls, growing, (work.place, work.ns_per_step, work.evidence), change)


def _on_cpu(trace: Trace) -> Iterator[Found]:
    """The same of operators that the CPU computes."""
    host, grown = trace.host_ops, growing_on_cpu(trace)
    assert host is not None
    spans = host_spans(trace, grown.left < 1, "going through it") if grown.kinds else None
    if spans is None:
        return
    took = host["duration_ns"] + 1
    share = float(np.average(grown.left[spans.rows], weights=took[spans.rows]))
    change = ScaleHostSpans(spans.rows, share)
    found = _found(
        grown.calls,
        grown.kinds,
        (spans.place, spans.ns_per_step, spans.evidence),
        change,
    )
    whole = host_spans(trace, grown.in_libraries | (grown.left < 1), "calls that go through it")
    if whole is None or not grown.in_libraries[whole.rows].any():
        yield found
        return
    yield structs.replace(
        found,
        summary=f"{found.summary}; all that is called for it takes {duration(whole.ns_per_step)}",
        evidence=(*found.evidence, whole.evidence[0]),
        cost_ns_per_step=whole.ns_per_step,
        at_best=(ScaleHostSpans(whole.rows, share),),
    )


def _found(
    calls: Sequence[LaunchedCall],
    growing: Sequence[Growing],
    work: tuple[Location | None, int, tuple[Evidence, ...]],
    change: Change,
) -> Found:
    place, ns_per_step, evidence = work
    largest = max(growing, key=lambda of: of.elements)
    return Found(
        summary=(
            f"A tensor of {largest.elements:,} elements is gone through in each step"
            f"{f' in {place}' if place else ''}, {largest.added:,} longer each time:"
            f" {duration(ns_per_step)} of each recorded step, and more as the run goes on"
        ),
        evidence=(
            Evidence("elements", largest.elements, "count"),
            Evidence("added by a step", largest.added, "count"),
            Evidence(
                "operators that grow with it",
                _names(calls, [i for of in growing for i in of.calls]),
                "",
            ),
            *evidence,
        ),
        cost_ns_per_step=ns_per_step,
        changes=(change,),
        location=place,
        fix="Compute it only where it is used, or go on from the result of the step before",
        hint="if step % 100 == 0:\n    metric = compute(history)  # where it is written",
        confidence="medium",
    )


def _names(calls: Sequence[LaunchedCall], mine: list[int]) -> str:
    return ", ".join(sorted({calls[i].call.name.removeprefix("aten::") for i in mine}))


def _step_of_ops(trace: Trace) -> Ints:
    """The whole step that each device operation runs in; -1 for none."""
    ops, found = trace.device_ops, steps(trace)
    assert ops is not None
    at = np.searchsorted(found.start_ns, ops["start_ns"], "right") - 1
    inside = (at >= 0) & (ops["start_ns"] < found.end_ns[at]) & found.complete[at]
    return np.where(inside, at, -1)
