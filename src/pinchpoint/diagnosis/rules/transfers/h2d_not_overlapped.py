"""Copies to the device and compute take turns on one stream.

## What it looks for
Fast host-to-device copies (from page-locked memory) during which the device computes nothing,
because they sit on the stream of the kernels. The gain is what replay says with these copies on a
stream of their own. Copies from ordinary memory are `pageable-h2d`, and those that the next kernels
need at once win nothing.

## Why it matters
The copy engine and the compute units can work at the same time. On one stream they never do.

## How to fix it
Copy the next batch on a side stream while this one is computed (a prefetcher), and let the compute
stream wait for it by event.

## When to ignore it
Where the copies are short next to the step.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.replay import MoveToOwnStream
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_TORCH_CUDA, Rule
from pinchpoint.trace import MemoryKind, Trace
from pinchpoint.trace.arrays import distinct
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops", "api_calls"),
    record=CPU_AND_DEVICE,
    knobs=("pin_memory",),
    advice=NO_TORCH_CUDA,
    confirm='pinchpoint bench ab -- "python train.py" "python train_prefetch.py"',
)

LARGE_COPY_BYTES = 1 << 20  # smaller ones are bound by their calls


def check(trace: Trace) -> Iterator[Found]:
    """Large pinned copies on a stream that also computes."""
    ops = trace.device_ops
    if ops is None:
        return
    pinned = np.isin(ops.filled("from_memory", 0), (MemoryKind.PINNED, MemoryKind.HOST))
    pinned &= ops.filled("to_memory", 0) == MemoryKind.DEVICE
    pinned &= ops.filled("bytes", 0) >= LARGE_COPY_BYTES
    stream = ops.filled("stream", 0)
    computing = distinct(stream[~ops.known("bytes")])
    copies = device_work(trace, pinned & np.isin(stream, computing), "copies on a compute stream")
    if copies is None:
        return
    yield Found(
        summary=(
            "Copies to the device wait for the kernels of their stream, and these for them:"
            f" {copies.count:.3g} a step, {duration(copies.ns_per_step)} of each recorded step"
        ),
        evidence=copies.evidence,
        cost_ns_per_step=copies.ns_per_step,
        changes=(MoveToOwnStream(copies.rows),),
        location=copies.place,
        fix="Copy the next batch on a side stream while this one is computed",
        hint="with torch.cuda.stream(side): batch = batch.to(device, non_blocking=True)",
    )
