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

from collections.abc import Iterator

from pinchpoint.diagnosis.kernel_findings import NEEDS, RECORD, Advice, kernel_findings
from pinchpoint.diagnosis.rule import Finding
from pinchpoint.trace import Trace

__all__ = ["NEEDS", "RECORD", "check"]

ADVICE = Advice(
    what="has few warps in flight",
    fix="Relieve the limiter that the evidence names: registers, shared memory or block size",
    hint="__launch_bounds__(threads, blocks)  /  num_warps, num_stages in Triton",
    nvidia=("TheoreticalOccupancy", "AchievedOccupancy", "Occupancy"),
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding about all profiled launches that show it."""
    yield from kernel_findings(trace, "kernel-low-occupancy", ADVICE)
