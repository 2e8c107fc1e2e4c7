"""Activations are computed twice although memory is free.

## What it looks for
Operators of the forward pass that run again inside the backward pass (activation checkpointing),
while the peak of the device's memory stays below half of what the device has.

## Why it matters
Checkpointing trades time for memory: a quarter to a third of the step goes into doing the forward
pass again. That is a good trade only where memory is short.

## How to fix it
Switch checkpointing off, or leave it on for a few layers only; or use the memory for a larger
batch.

## When to ignore it
Where the memory is kept free on purpose, for longer sequences or another process.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.attribution import recomputed_rows
from pinchpoint.analysis.replay import DropDeviceOps, ScaleHostSpans
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.diagnosis.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.host_spans import outermost
from pinchpoint.diagnosis.record import Need, Record
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=Record(
        "memory as well: profile_memory=True", Need.PROFILE_MEMORY, Record("memory as well")
    ),
    advice=NO_HINT,
)

MEMORY_FREE_RATIO = 0.5  # of the device's memory in use at the peak; kept activations need room


def check(trace: Trace) -> Iterator[Found]:
    """Forward work inside backward, where memory would allow to keep its results."""
    again = recomputed_rows(trace)
    work = device_work(trace, _launched_by(trace, again), "the forward pass done again")
    if work is None:
        return
    used = _peak_ratio(trace)
    if used is None:
        raise NotChecked("layers are computed again, but whether memory is short is not recorded")
    if used > MEMORY_FREE_RATIO:
        return
    yield Found(
        summary=(
            f"{work.count:.0f} kernels a step do the forward pass again in backward,"
            f" {duration(work.ns_per_step)} of each step, while {1 - used:.0%} of the memory is"
            " free at the peak"
        ),
        evidence=(*work.evidence, Evidence("memory in use at the peak", round(used, 3), "ratio")),
        cost_ns_per_step=work.ns_per_step,
        changes=(
            DropDeviceOps(work.rows),
            ScaleHostSpans(np.flatnonzero(outermost(trace, again)), 0.0),
        ),
        location=work.place,
        fix="Switch activation checkpointing off, or leave it on for a few layers",
        hint="model.gradient_checkpointing_disable()",
        confirm='pinchpoint bench ab -- "python train.py" "python train_no_checkpointing.py"',
    )


def _launched_by(trace: Trace, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.append(rows, False)[launched_calls(trace).operator]
    return found


def _peak_ratio(trace: Trace) -> float | None:
    """The most memory that the process reserved, of the device's; None where not recorded."""
    blocks = trace.allocations
    sizes = {d.number: d.memory_bytes for d in trace.devices if d.memory_bytes}
    if blocks is None or not len(blocks):
        return None
    total = np.maximum(blocks.filled("reserved_bytes", 0), blocks.filled("allocated_bytes", 0))
    ratios = [
        int(total[blocks.filled("device", -1) == number].max(initial=0)) / size
        for number, size in sizes.items()
    ]
    return max(ratios, default=0.0) or None
