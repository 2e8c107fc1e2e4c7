"""The last wave of blocks does not fill the chip.

## What it looks for
Launches profiled by Nsight Compute with a fractional last wave that costs more than a tenth of the
time, where at most four full waves come before it.

## Why it matters
The whole chip waits for the few blocks of the last wave.

## How to fix it
Choose tile sizes so that the grid is a multiple of what runs at once, or let persistent blocks
share the work.

## When to ignore it
Where another kernel runs beside it and fills the gap.
"""

from functools import partial

from pinchpoint.analysis.limits.counter_issues import IssueKind
from pinchpoint.diagnosis.rules.kernels._launches import KERNEL_RULE, Words, kernel_findings

RULE = KERNEL_RULE

check = partial(
    kernel_findings,
    kind=IssueKind.TAIL_EFFECT,
    words=Words(
        what="ends in a wave that is not full",
        fix="Choose tiles that fill whole waves, or use a persistent kernel",
        nvidia=("LaunchConfiguration",),
    ),
)
