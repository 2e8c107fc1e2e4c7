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

from collections.abc import Iterator

from pinchpoint.diagnosis.kernel_findings import NEEDS, RECORD, Advice, kernel_findings
from pinchpoint.diagnosis.rule import Finding
from pinchpoint.trace import Trace

__all__ = ["NEEDS", "RECORD", "check"]

ADVICE = Advice(
    what="is limited by arithmetic or instruction issue",
    fix="Use a faster number format or fewer instructions; beyond 80 % change the algorithm",
    nvidia=("SOLBottleneck", "HighPipeUtilization"),
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding about all profiled launches that show it."""
    yield from kernel_findings(trace, "kernel-compute-bound", ADVICE)
