"""Cached device memory is handed back to the driver every step, and bought again.

## What it looks for
Driver calls that free device memory outside of any allocation, step after step, with driver
allocations that follow: what `torch.cuda.empty_cache()` in the loop does. Frees that happen inside
an operator are another cause (driver-allocations), frees around the capture of a graph belong to
graph-captured-in-loop, and one free without a new allocation after it cost a step nothing.

## Why it matters
The driver's allocation calls cost tens to hundreds of microseconds each, and freeing synchronises
the whole device.

## How to fix it
Remove `empty_cache()` from the loop. The cache is not a leak: what it holds is used again.

## When to ignore it
Between phases that need memory in very different shapes.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.causal.pieces import MOST_STEPS_RATIO
from pinchpoint.analysis.host.attribution import called_by_operators
from pinchpoint.analysis.host.graph_captures import graph_captures
from pinchpoint.analysis.replay import DropSyncs
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step, rows_in_steps
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import DEVICE
from pinchpoint.diagnosis.rule import Framework, Rule
from pinchpoint.trace import ApiKind, Trace
from pinchpoint.trace.arrays import distinct
from pinchpoint.trace.intervals import contains

RULE = Rule(
    needs=("api_calls",),
    record=DEVICE,
    knobs=("expandable_segments",),
    advice={Framework.OTHER: {"fix": "Keep the cache of device memory in the loop"}},
)


def check(trace: Trace) -> Iterator[Found]:
    """Frees outside allocations, and the allocations that make up for them."""
    calls = trace.api_calls
    if calls is None:
        return
    inside = rows_in_steps(trace, calls) & ~contains(graph_captures(trace), calls["start_ns"])
    frees = np.flatnonzero((calls["kind"] == ApiKind.FREE) & inside & ~called_by_operators(trace))
    mallocs = np.flatnonzero((calls["kind"] == ApiKind.MALLOC) & inside)
    steps = judged_steps(trace)
    freeing = distinct(steps.step_of(calls["start_ns"][frees]))
    if not len(mallocs) or len(freeing) < max(2, MOST_STEPS_RATIO * len(steps)):
        return
    rows = np.concatenate((frees, mallocs))
    took = calls["duration_ns"][rows].astype(np.int64)
    nowhere = 0 if trace.host_ops is None else len(trace.host_ops)
    where = calls.filled("host_op", nowhere)
    place, _ = busiest_place(
        trace, where[frees].astype(np.intp), calls["duration_ns"][frees].astype(np.int64)
    )
    longest = int(rows[took.argmax()])
    cost = round(per_step(trace, int(took.sum())))
    name, at = trace.text(calls, "name", longest), int(calls["start_ns"][longest])
    yield Found(
        summary=(
            f"Device memory is given back and bought again,"
            f" {per_step(trace, len(mallocs)):.3g} driver allocations a step"
        ),
        evidence=(
            Evidence("driver frees", round(per_step(trace, len(frees)), 2), "per step"),
            Evidence("driver allocations", round(per_step(trace, len(mallocs)), 2), "per step"),
            Evidence("time in them", cost, "ns per step"),
            Evidence("longest", int(took.max()), "ns", at, name),
        ),
        cost_ns_per_step=cost,
        changes=(DropSyncs(rows),),
        location=place,
        fix="Remove torch.cuda.empty_cache() from the loop",
    )
