"""A graph of device work is captured and built anew in most steps.

## What it looks for
Steps in which the host begins to capture a stream (`cudaStreamBeginCapture`), ends it and builds
a graph, again and again: in more than half of the judged steps. What the framework does around a
capture (waiting for the device, giving cached memory back, buying the graph's own) counts to it,
and so does buying again what a capture gave back; none of it is blamed on `explicit-synchronize` or
`empty-cache-in-loop`. One capture at the start of a program is none.

## Why it matters
A graph pays when it is launched many times. To capture one, all work has to end first, the host
goes through every launch anyway, and building the graph takes some microseconds for each of its
nodes.

## How to fix it
Capture once for each shape, and find the graph again by the shape. Write what changes from call to
call (a step size, a position) into a tensor that the graph reads: `strength.fill_(value)` and then
`graph.replay()`. With `torch.compile(mode="reduce-overhead")`, call
`torch.compiler.cudagraph_mark_step_begin()` and keep inputs in the same memory.

## When to ignore it
While a program warms up.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.graph_captures import graph_captures
from pinchpoint.analysis.replay import DropSyncs, RemoveHostTime
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step, rows_in_steps
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import ApiKind, Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows, distinct
from pinchpoint.trace.durations import duration
from pinchpoint.trace.intervals import contains
from pinchpoint.trace.names import rows_named

RULE = Rule(needs=("api_calls",), record=CPU_AND_DEVICE, advice=NO_HINT)

MOST_STEPS_RATIO = 0.5  # of the steps: a habit of the loop, not one capture of a program
FEWEST_STEPS = 2  # that capture; one alone may be the first of its kind


def check(trace: Trace) -> Iterator[Found]:
    """Captures inside the steps."""
    calls, steps = trace.api_calls, judged_steps(trace)
    if calls is None:
        return
    named = rows_named(trace, calls, lambda name: "BeginCapture" in name)
    begun = np.flatnonzero(named & rows_in_steps(trace, calls))
    capturing = distinct(steps.step_of(calls["start_ns"][begun]))
    if len(capturing) < max(FEWEST_STEPS, MOST_STEPS_RATIO * len(steps)):
        return
    spans = graph_captures(trace)
    if not len(spans.start):
        return
    inside = contains(spans, calls["start_ns"])
    bought = _bought_back(trace, inside, capturing)
    inside |= calls["kind"] == ApiKind.GRAPH_BUILD
    rows = np.union1d(np.flatnonzero(inside & rows_in_steps(trace, calls)), bought)
    mine = steps.step_of(spans.start) >= 0
    begin, end = spans.start[mine], spans.end[mine]
    buying = calls["start_ns"][bought], calls.end_ns[bought]
    nowhere = 0 if trace.host_ops is None else len(trace.host_ops)
    around = calls.filled("host_op", nowhere)[begun].astype(np.intp)
    place, _ = busiest_place(trace, around, np.ones(len(begun), np.int64))
    spent_ns, times = round(per_step(trace, int((end - begin).sum()))), per_step(trace, len(begun))
    yield Found(
        summary=(
            f"A graph of device work is captured {times:.3g} × a step"
            f"{f' in {place}' if place else ''}, {duration(spent_ns)} of each recorded step"
        ),
        evidence=(
            Evidence(
                "captures",
                round(times, 2),
                "per step",
                int(calls["start_ns"][begun[0]]),
                trace.text(calls, "name", int(begun[0])),
            ),
            Evidence("time in captures", spent_ns, "ns per step"),
            Evidence("memory bought back", round(per_step(trace, len(bought)), 2), "per step"),
        ),
        cost_ns_per_step=spent_ns,
        changes=(DropSyncs(rows), RemoveHostTime(begin, end), RemoveHostTime(*buying)),
        location=place,
        fix="Capture once for each shape; write what changes into a tensor that the graph reads",
        hint="graph = held.get(x.shape) or capture(x); static.copy_(x); graph.replay()",
        confirm='pinchpoint bench ab -- "python serve.py" "python serve_fixed.py"',
    )


def _bought_back(trace: Trace, inside: Mask, capturing: Ints) -> Rows:
    """Allocations by the driver in the steps that capture, outside of the captures, where these
    give cached memory back: each capture does, and what comes next has to buy it again."""
    calls = trace.api_calls
    assert calls is not None
    if not (inside & (calls["kind"] == ApiKind.FREE)).any():
        return np.zeros(0, np.intp)
    steps = judged_steps(trace).step_of(calls["start_ns"])
    found: Rows = np.flatnonzero(
        (calls["kind"] == ApiKind.MALLOC) & ~inside & np.isin(steps, capturing) & (steps >= 0)
    )
    return found
