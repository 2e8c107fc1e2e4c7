"""Kernels run at the speed of the arithmetic units.

## What it looks for
Launches profiled by Nsight Compute whose compute units are at least 60 % busy, and whose FLOPs per
byte lie above the machine balance; or whose instructions keep the cores busier than memory by ten
points, although few bytes move.

## Why it matters
Memory and launch overhead are not the limit here: only less arithmetic, a faster number format or
better use of the units makes it faster.

## How to fix it
Lower precision on the tensor cores (TF32, bf16, fp8), fewer instructions an element (wider loads,
cheaper functions), or an algorithm with less work.

## When to ignore it
A product at 80 % and more of its pipe is near what the chip can do.
"""

from functools import partial

from pinchpoint.analysis.limits.counter_issues import IssueKind
from pinchpoint.diagnosis.rules.kernels._launches import KERNEL_RULE, Words, kernel_findings

RULE = KERNEL_RULE

check = partial(
    kernel_findings,
    kind=IssueKind.COMPUTE_BOUND,
    words=Words(
        what="is limited by arithmetic or instruction issue",
        fix="Use a faster number format or fewer instructions; beyond 80 % change the algorithm",
        nvidia=("SOLBottleneck", "HighPipeUtilization"),
    ),
)
