"""Kernels wait for latency: neither compute nor memory is busy.

## What it looks for
Launches profiled by Nsight Compute that fill the chip (at least as many blocks as multiprocessors)
and keep both compute and memory below 60 % of their peak.

## Why it matters
The hardware idles while warps wait for each other, for data or for instructions. This is where
tuning a kernel wins most.

## How to fix it
Give the schedulers more to choose from: more warps (fewer registers or less shared memory a block),
more independent work a thread, deeper prefetching. The stall reasons say which.

## When to ignore it
Kernels of a few microseconds: their start and end are most of their life.
"""

from functools import partial

from pinchpoint.analysis.limits.counter_issues import IssueKind
from pinchpoint.diagnosis.rules.kernels._launches import KERNEL_RULE, Words, kernel_findings

RULE = KERNEL_RULE

check = partial(
    kernel_findings,
    kind=IssueKind.LATENCY_BOUND,
    words=Words(
        what="waits: neither compute nor memory is busy",
        fix="Raise the work in flight: occupancy, independent loads a thread, prefetching",
        nvidia=("SOLBottleneck", "IssueSlotUtilization"),
    ),
)
