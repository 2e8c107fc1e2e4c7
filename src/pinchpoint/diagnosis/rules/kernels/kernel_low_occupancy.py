"""Few warps are resident, and the schedulers starve.

## What it looks for
Launches profiled by Nsight Compute with a theoretical occupancy below 80 %, or less than a quarter
of the possible warps active, while the schedulers issue less than 0.6 instructions a cycle and no
unit is near its limit. The limiter is the resource that allows the fewest blocks.

## Why it matters
Other warps hide the latency of one. With few of them, the multiprocessor waits.

## How to fix it
Relieve the limiter: registers (launch bounds, a smaller tile), shared memory (fewer stages), or the
block size.

## When to ignore it
Products and attention on tensor cores run at full speed with 10 to 20 % occupancy; this rule keeps
quiet when a unit is 80 % busy.
"""

from functools import partial

from pinchpoint.analysis.limits.counter_issues import IssueKind
from pinchpoint.diagnosis.rules.kernels._launches import KERNEL_RULE, Words, kernel_findings

RULE = KERNEL_RULE

check = partial(
    kernel_findings,
    kind=IssueKind.LOW_OCCUPANCY,
    words=Words(
        what="has few warps in flight",
        fix="Relieve the limiter that the evidence names: registers, shared memory or block size",
        hint="__launch_bounds__(threads, blocks)  /  num_warps, num_stages in Triton",
        nvidia=("TheoreticalOccupancy", "AchievedOccupancy", "Occupancy"),
    ),
)
