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

from collections.abc import Iterator

from pinchpoint.diagnosis.kernel_findings import NEEDS, RECORD, Advice, kernel_findings
from pinchpoint.diagnosis.rule import Finding
from pinchpoint.trace import Trace

__all__ = ["NEEDS", "RECORD", "check"]

ADVICE = Advice(
    what="ends in a wave that is not full",
    fix="Choose tiles that fill whole waves, or use a persistent kernel",
    nvidia=("LaunchConfiguration",),
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding about all profiled launches that show it."""
    yield from kernel_findings(trace, "kernel-tail-effect", ADVICE)
