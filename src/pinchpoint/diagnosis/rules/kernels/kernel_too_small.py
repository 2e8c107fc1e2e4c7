"""A launch has fewer blocks than the chip has multiprocessors.

## What it looks for
Launches profiled by Nsight Compute whose grid is smaller than the number of multiprocessors.

## Why it matters
Part of the chip has nothing to do, whatever the kernel does. Tiny kernels cost their launch, not
their work.

## How to fix it
Batch several of them into one, fuse them into a neighbour, or split the work further (split-K for
products with a small result).

## When to ignore it
Persistent kernels choose one block a multiprocessor on purpose, and work that runs beside others on
another stream.
"""

from functools import partial

from pinchpoint.analysis.limits.counter_issues import IssueKind
from pinchpoint.diagnosis.rules.kernels._launches import KERNEL_RULE, Words, kernel_findings

RULE = KERNEL_RULE

check = partial(
    kernel_findings,
    kind=IssueKind.TOO_SMALL,
    words=Words(
        what="is too small for the chip",
        fix="Batch or fuse small launches, or split the work into more blocks",
        nvidia=("LaunchConfiguration", "SOLBottleneck"),
    ),
)
