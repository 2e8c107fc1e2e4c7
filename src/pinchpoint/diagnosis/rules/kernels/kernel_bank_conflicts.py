"""Threads of a warp hit the same bank of shared memory.

## What it looks for
Launches profiled by Nsight Compute in which at least a tenth of the shared-memory wavefronts are
caused by bank conflicts. Without those metrics, NVIDIA's rule SharedMemoryConflicts is taken at its
word.

## Why it matters
Conflicting accesses are served one after the other.

## How to fix it
Pad rows by one element, swizzle the addresses, or use wider accesses.

## When to ignore it
Where shared memory is far from being the limit.
"""

from functools import partial

from pinchpoint.analysis.limits.counter_issues import IssueKind
from pinchpoint.diagnosis.rules.kernels._launches import KERNEL_RULE, Words, kernel_findings

RULE = KERNEL_RULE

check = partial(
    kernel_findings,
    kind=IssueKind.BANK_CONFLICTS,
    words=Words(
        what="loses time to bank conflicts",
        fix="Pad or swizzle the shared-memory layout",
        nvidia=("SharedMemoryConflicts", "UncoalescedSharedAccess"),
    ),
)
