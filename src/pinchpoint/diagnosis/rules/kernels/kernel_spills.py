"""Registers spill to local memory.

## What it looks for
Launches profiled by Nsight Compute in which more than 5 % of the local-memory requests come from
spilled registers, or which execute spill instructions at all where that share was not collected.

## Why it matters
A spilled value goes through the caches to device memory and back.

## How to fix it
Smaller tiles, fewer live values, another register limit.

## When to ignore it
A few spills outside the inner loop cost nothing.
"""

from functools import partial

from pinchpoint.analysis.limits.counter_issues import IssueKind
from pinchpoint.diagnosis.rules.kernels._launches import KERNEL_RULE, Words, kernel_findings

RULE = KERNEL_RULE

check = partial(
    kernel_findings,
    kind=IssueKind.SPILLS,
    words=Words(
        what="spills registers",
        fix="Use smaller tiles or raise the register limit",
        hint="__launch_bounds__, -maxrregcount  /  num_warps in Triton",
    ),
)
