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

from pinchpoint.analysis.in_steps import per_step, rows_in_steps
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.diagnosis.locate import location_of
from pinchpoint.diagnosis.rule import Evidence, Finding
from pinchpoint.trace import HostKind, Trace

NEEDS = ("host_ops", "device_ops")
RECORD = "CPU and device activity together: ProfilerActivity.CPU and ProfilerActivity.CUDA"

LOADER = "enumerate(Data"  # torch names the range enumerate(DataLoader)#…__next__
READY_BATCH_RATIO = 0.02  # taking a batch that is ready costs about 0.1 ms of a wait of 5 ms


def check(trace: Trace) -> Iterator[Finding]:
    """Waits for the loader inside the steps."""
    host = trace.host_ops
    if host is None:
        return
    is_loader = np.array([LOADER in name for name in trace.names])
    rows = is_loader[host["name"]] & (host["kind"] == HostKind.ANNOTATION)
    loads = np.flatnonzero(rows & rows_in_steps(trace, host))
    if not len(loads):
        return
    took = host["duration_ns"][loads]
    longest = int(loads[took.argmax()])
    name = trace.text(host, "name", longest) or ""
    workers = "MultiProcessing" in name
    doing = "waits for worker processes" if workers else "prepares the batch itself"
    fix = (
        "Look at what the workers do, and give the loader more of them"
        if workers
        else "Give the loader worker processes"
    )
    cost = round(per_step(trace, int(took.sum())))
    yield Finding(
        summary=f"The training thread {doing} for {cost / 1e6:.2f} ms of each step",
        evidence=(
            Evidence("time in the loader's next()", cost, "ns per step"),
            Evidence("longest", int(took.max()), "ns", int(host["start_ns"][longest]), name),
        ),
        cost_ns_per_step=cost,
        changes=(ScaleHostSpans(loads, READY_BATCH_RATIO),),
        location=location_of(trace, longest),
        fix=fix,
        hint="DataLoader(..., num_workers=8, pin_memory=True, persistent_workers=True)",
        confirm="pinchpoint bench ab --knob num_workers=0,8 -- python train.py",
    )
