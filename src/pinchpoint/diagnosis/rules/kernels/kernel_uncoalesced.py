"""Threads of a warp touch scattered addresses.

## What it looks for
Launches profiled by Nsight Compute in which more than a tenth of the L2 sectors asked for by global
loads and stores would not be needed if neighbouring threads used neighbouring addresses. Without
those metrics, NVIDIA's rule UncoalescedGlobalAccess is taken at its word.

## Why it matters
Memory moves in sectors of 32 bytes. Of a sector that is read for 4 bytes, 28 are wasted bandwidth.

## How to fix it
Let neighbouring threads read neighbouring elements: another layout, a transposition through shared
memory, another loop order.

## When to ignore it
Gathers over random indices have nothing to coalesce.
"""

from functools import partial

from pinchpoint.analysis.limits.counter_issues import IssueKind
from pinchpoint.diagnosis.rules.kernels._launches import KERNEL_RULE, Words, kernel_findings

RULE = KERNEL_RULE

check = partial(
    kernel_findings,
    kind=IssueKind.UNCOALESCED,
    words=Words(
        what="accesses memory uncoalesced",
        fix="Let neighbouring threads touch neighbouring addresses",
        nvidia=("UncoalescedGlobalAccess", "MemoryCacheAccessPattern"),
    ),
)
