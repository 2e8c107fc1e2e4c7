"""A launch was profiled at a lower clock than others.

## What it looks for
Launches of at least 20 microseconds whose multiprocessor clock was more than 5 % below the highest
one in the same report.

## Why it matters
Power or temperature slowed the chip down for this kernel: large tensor-core products draw most.
Times of launches at different clocks are not comparable.

## How to fix it
Compare cycles instead of times, or lock the clocks; check the power limit and cooling if the
program itself is throttled.

## When to ignore it
Where only the relation within one launch matters: shares of peak are taken at the launch's own
clock.
"""

from functools import partial

from pinchpoint.analysis.limits.counter_issues import IssueKind
from pinchpoint.diagnosis.rules.kernels._launches import KERNEL_RULE, Words, kernel_findings

RULE = KERNEL_RULE

check = partial(
    kernel_findings,
    kind=IssueKind.LOW_CLOCK,
    words=Words(
        what="ran at a lower clock",
        fix="Compare cycles, or lock the clocks; check power limit and cooling",
        hint="nvidia-smi --lock-gpu-clocks=MIN,MAX",
    ),
)
