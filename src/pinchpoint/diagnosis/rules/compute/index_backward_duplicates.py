"""Rows are added by a sorted index, equal ones one after the other.

## What it looks for
`index_put_` with accumulation (the backward pass of `table[index]` is one) whose kernel
`indexing_backward` takes three times as long as the same additions take as atomics. It sorts the
indices and walks through each run of equal ones serially, so its time grows with the longest run:
on rows that rarely repeat it is as fast as any other way. Under an operator that would add by
atomics otherwise it is deterministic-algorithms instead. Not checked without shapes, or on a
device whose memory bandwidth is not known.

## Why it matters
A table of few rows that is read tens of thousands of times (position biases, buckets, types) has
runs of thousands; the lookup's backward pass then takes hundreds of times what moving its rows
would.

## How to fix it
Look rows up with `torch.nn.functional.embedding(index, table)`, whose backward splits long runs, or
with `table.index_select(0, index)`, whose backward adds by atomics. Where the index came from a
mask, `torch.where` has no such backward at all.

## When to ignore it
Where the backward pass must be deterministic.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import parents, within
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.diagnosis.evidence.attainable import Attainable, attainable
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.host_spans import named
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_OF_INPUTS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Floats, Mask
from pinchpoint.trace.durations import counted, duration
from pinchpoint.trace.names import rows_named

RULE = Rule(needs=("device_ops", "host_ops"), record=SHAPES_OF_INPUTS, advice=NO_HINT)

SERIAL_RATIO = 3.0  # of what atomics take; sorted kernels without long runs need about as much
# Of the serial kernel, what the backward of F.embedding takes with the same indices where half of
# them are equal: measured on an H200, 1/23 to 1/59 for rows of 1 to 256 numbers. Between both.
SPLIT_RUNS_RATIO = 1 / 37


def check(trace: Trace) -> Iterator[Found]:
    """Kernels that walk through runs of equal indices."""
    host, ops = trace.host_ops, trace.device_ops
    from pinchpoint.diagnosis.rules.compute._scattered_adds import SORTED

    if host is None or ops is None or not named(trace, lambda name: name in SORTED).any():
        return
    if not host.known("shapes").any():
        raise NotChecked("the recording has no shapes of inputs")
    well = attainable(trace)
    if well is None:
        raise NotChecked("the memory bandwidth of this device is not known")
    alone = _as_atomics_ns(trace, well)
    serial = _walks(trace) & (ops["duration_ns"] > SERIAL_RATIO * alone)
    work = device_work(trace, serial, "additions in order of a sorted index")
    if work is None:
        return
    took = ops["duration_ns"][work.rows].astype(np.float64)
    times = took.sum() / alone[work.rows].sum()
    yield Found(
        summary=(
            f"Rows whose index repeats are added one by one in {counted(work.count, 'kernel')} a"
            f" step, {duration(work.ns_per_step)}"
            f" of each recorded step and {times:.0f} times what atomic"
            " additions take"
        ),
        evidence=(
            *work.evidence,
            Evidence("the same as atomic additions", round(float(alone[work.rows].mean())), "ns"),
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(ScaleDeviceOps(work.rows, np.maximum(alone[work.rows] / took, SPLIT_RUNS_RATIO)),),
        location=work.place,
        fix="Look the rows up with F.embedding or index_select rather than table[index]",
        hint="bias = F.embedding(index, table)",
    )


def _as_atomics_ns(trace: Trace, well: Attainable) -> Floats:
    """Infinite where the call tells no number of additions."""
    from pinchpoint.diagnosis.rules.compute._scattered_adds import adds_ns

    found: Floats = np.nan_to_num(
        launched_calls(trace).numbers(lambda of: adds_ns(well, of)), nan=np.inf
    )
    return found


def _walks(trace: Trace) -> Mask:
    """Serial kernels of ``index_put_`` that no operator with another way has called."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    from pinchpoint.diagnosis.rules.compute._scattered_adds import BY_ATOMICS, SORTED

    otherwise = within(parents(host), named(trace, lambda name: name in BY_ATOMICS))[:-1]
    put = launched_calls(trace).where(lambda of: of.call.name in SORTED)
    elsewhere = np.append(otherwise, False)[ops.filled("host_op", len(host))]
    serial = rows_named(trace, ops, lambda name: "indexing_backward" in name)
    walks: Mask = put & serial & ~elsewhere
    return walks
