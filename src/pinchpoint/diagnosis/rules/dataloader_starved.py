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

import numpy as np

from pinchpoint.analysis.in_steps import judged_steps
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.diagnosis.host_spans import host_spans, named
from pinchpoint.diagnosis.rule import Finding
from pinchpoint.trace import HostKind, Trace

NEEDS = ("host_ops", "device_ops")
RECORD = "CPU and device activity together: ProfilerActivity.CPU and ProfilerActivity.CUDA"
PERIODIC = True

LOADER = "enumerate(Data"  # torch names the range enumerate(DataLoader)#…__next__
LEAST_WAIT_NS = 1_000_000  # taking a batch that is ready costs up to 0.6 ms, recorded
LEAST_STEPS_RATIO = 1 / 3  # a wait in fewer steps is an incident (a new epoch, a busy disk)
READY_BATCH_RATIO = 0.02  # taking a batch that is ready costs about 0.1 ms of a wait of 5 ms


def check(trace: Trace) -> Iterator[Finding]:
    """Waits for the loader inside the steps."""
    host = trace.host_ops
    if host is None:
        return
    ranges = named(trace, np.array([LOADER in name for name in trace.names]))
    ranges &= host["kind"] == HostKind.ANNOTATION
    loads = host_spans(trace, ranges, "time in the loader's next()")
    if loads is None:
        return
    waiting = host["duration_ns"][loads.rows] >= LEAST_WAIT_NS
    steps = judged_steps(trace)
    starving = np.unique(steps.step_of(host["start_ns"][loads.rows[waiting]]))
    if len(starving) < LEAST_STEPS_RATIO * len(steps):
        return
    workers = "MultiProcessing" in (loads.evidence[-1].name or "")
    doing = "waits for worker processes" if workers else "prepares the batch itself"
    yield Finding(
        summary=f"The training thread {doing}, {loads.ns_per_step / 1e6:.2f} ms of each step",
        evidence=loads.evidence,
        cost_ns_per_step=loads.ns_per_step,
        changes=(ScaleHostSpans(loads.rows, READY_BATCH_RATIO),),
        location=loads.place,
        fix=_WITH_WORKERS if workers else "Give the loader worker processes",
        hint="DataLoader(..., num_workers=8, pin_memory=True, persistent_workers=True)",
        confirm="pinchpoint bench ab --knob num_workers=0,8 -- python train.py",
    )


_WITH_WORKERS = (
    "Look at what the workers do (py-spy dump on a worker shows it), and give the loader more"
)
