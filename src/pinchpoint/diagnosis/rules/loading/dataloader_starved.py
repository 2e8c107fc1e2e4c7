"""The step waits for its batch.

## What it looks for
Time of the training thread in the loader's `next()`, and a device that idles meanwhile. With
worker processes that is waiting; without (`num_workers=0`) the batch is prepared on the very
thread that should launch kernels.

## Why it matters
Whatever the model does, it cannot run faster than its batches arrive.

## How to fix it
Give the loader worker processes (`num_workers`), pinned memory and prefetching. If workers are
there and still too slow, look at what they do: decoding, transforms, many small files, collating.

## When to ignore it
Where the wait falls into time in which the device is busy anyway.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.loading import loads
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_KNOB, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=CPU_AND_DEVICE,
    periodic=True,
    knobs=("num_workers",),
    advice=NO_KNOB,
)


def check(trace: Trace) -> Iterator[Found]:
    """Waits for the loader inside the steps."""
    found = loads(trace)
    if found is None or not found.starving:
        return
    pinned = " pin_memory=True," if trace.device_ops is not None else ""  # for copies to a device
    doing = "waits for worker processes" if found.in_workers else "prepares the batch itself"
    yield Found(
        summary=f"The training thread {doing}, {duration(found.spans.ns_per_step)} of each step",
        evidence=found.spans.evidence,
        cost_ns_per_step=found.spans.ns_per_step,
        changes=found.ready,
        location=found.spans.place,
        fix=_WITH_WORKERS if found.in_workers else "Give the loader worker processes",
        hint=f"DataLoader(..., num_workers=8,{pinned} persistent_workers=True)",
        confirm="pinchpoint try --knob num_workers=8 -- python train.py",
    )


_WITH_WORKERS = (
    "Look at what the workers do (py-spy dump on a worker shows it), and give the loader more"
)
