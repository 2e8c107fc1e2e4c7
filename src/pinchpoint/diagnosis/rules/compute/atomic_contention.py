"""Additions by index wait for each other: many of them have the same target.

## What it looks for
`index_add_`, `scatter_add_` and `scatter_reduce_` (the backward passes of `index_select` and
`gather` are made of them) whose kernel takes three times as long as its additions take at random
targets: a fixed number of bytes' worth of time for each addition, measured. Atomic additions to
different places run side by side; those to one place queue. Nothing else that such a kernel does
grows without growing its shapes: sources across their layout and narrow rows are told apart. Not
checked without shapes, or on a device whose memory bandwidth is not known.

## Why it matters
Half of the rows aimed at one target make the kernel five times slower for rows of 64 numbers, and
fifty times for single numbers; in 16 bits, where an addition is a loop of comparing and swapping,
thousands of times.

## How to fix it
Find the index that is repeated; often it is a filler (padding that points to row 0). Spread fillers
over spare rows that are cut off afterwards, or leave them out. Where targets must coincide, add up
equal ones first (sort and `segment_reduce`), or use a product with a one-hot matrix for few rows.
Accumulate in float32.

## When to ignore it
Where the order of duplicates is what the program computes.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.diagnosis.evidence.attainable import Attainable, attainable, scaled
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.host_spans import named
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_OF_INPUTS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.durations import counted, duration

RULE = Rule(needs=("device_ops", "host_ops"), record=SHAPES_OF_INPUTS, advice=NO_HINT)

# Of what random targets take. Evenly spread over as few as 64 rows it is 1.8 times as much
# (measured on an H200); with half of the rows at one target 5 times and more.
QUEUED_RATIO = 3.0


def check(trace: Trace) -> Iterator[Found]:
    """Kernels that add by atomics, far slower than their additions."""
    host = trace.host_ops
    from pinchpoint.diagnosis.rules.compute._scattered_adds import BY_ATOMICS, adds_ns

    if host is None or not named(trace, lambda name: name in BY_ATOMICS).any():
        return
    if not host.known("shapes").any():
        raise NotChecked("the recording has no shapes of inputs")
    well = attainable(trace)
    if well is None:
        raise NotChecked("the memory bandwidth of this device is not known")
    work = device_work(trace, _queued(trace, well), "additions by index")
    if work is None:
        return
    calls = launched_calls(trace)
    added = float(np.nansum(calls.numbers(_count)[work.rows]))
    took = work.ns_per_step
    change = scaled(trace, work.rows, partial(adds_ns, well), 1.0)
    left = float(np.max(change.factor))
    yield Found(
        summary=(
            f"Rows are added by index in {counted(work.count, 'kernel')} a step,"
            f" {duration(took)} of each recorded step:"
            f" {1 / left:.1f} times what the same additions take at"
            " targets that differ"
        ),
        evidence=(
            *work.evidence,
            Evidence("additions", round(added / max(len(work.rows), 1)), "each"),
            Evidence("at targets that differ", round(took * left), "ns"),
        ),
        cost_ns_per_step=took,
        changes=(change,),
        location=work.place,
        fix="Find the index that repeats (padding, often) and spread it, or merge equal ones first",
        hint="index = torch.where(valid, index, rows + slot % spare)  # cut off afterwards",
    )


def _queued(trace: Trace, well: Attainable) -> Mask:
    ops, calls = trace.device_ops, launched_calls(trace)
    assert ops is not None
    from pinchpoint.diagnosis.rules.compute._scattered_adds import BY_ATOMICS, adds_ns, dense_source

    mine = calls.where(lambda of: of.call.name in BY_ATOMICS and dense_source(of))
    took = np.bincount(calls.operator, ops["duration_ns"] * mine)[calls.operator]
    alone = calls.numbers(partial(adds_ns, well))
    queued: Mask = mine & (took > QUEUED_RATIO * np.nan_to_num(alone, nan=np.inf))
    return queued


def _count(of: LaunchedCall) -> float | None:
    from pinchpoint.diagnosis.rules.compute._scattered_adds import adds_of

    adds = adds_of(of)
    return None if adds is None else float(adds.count)
