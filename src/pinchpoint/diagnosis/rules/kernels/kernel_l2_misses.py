"""A product finds little of its data in L2.

## What it looks for
Products, convolutions and attention profiled by Nsight Compute with an L2 hit rate below 20 % while
device memory is at least 60 % busy.

## Why it matters
These kernels reuse their data; a low hit rate means that tiles are visited in an order that throws
them out of the cache before they are used again.

## How to fix it
Visit tiles in groups (the group-M ordering of Triton's matmul), use larger tiles, smaller types.

## When to ignore it
Work that passes over its data once cannot hit, and is not judged here.
"""

from functools import partial

from pinchpoint.analysis.limits.counter_issues import IssueKind
from pinchpoint.diagnosis.rules.kernels._launches import KERNEL_RULE, Words, kernel_findings

RULE = KERNEL_RULE

check = partial(
    kernel_findings,
    kind=IssueKind.L2_MISSES,
    words=Words(
        what="misses in L2",
        fix="Visit tiles in groups so that they are reused while they are in L2",
        nvidia=("MemoryL2Compression",),
    ),
)
