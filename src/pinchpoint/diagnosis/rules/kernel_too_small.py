"""A launch has fewer blocks than the chip has multiprocessors.

## What it looks for
Launches profiled by Nsight Compute whose grid is smaller than the number of multiprocessors.

## Why it matters
Part of the chip has nothing to do, whatever the kernel does. Tiny kernels cost their launch, not
their work.

## How to fix it
Batch several of them into one, fuse them into a neighbour, or split the work further (split-K for
products with a small result).

## When to ignore it
Persistent kernels choose one block a multiprocessor on purpose, and work that runs beside others on
another stream.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.kernel_findings import NEEDS, RECORD, Advice, kernel_findings
from pinchpoint.diagnosis.rule import Finding
from pinchpoint.trace import Trace

__all__ = ["NEEDS", "RECORD", "check"]

ADVICE = Advice(
    what="is too small for the chip",
    fix="Batch or fuse small launches, or split the work into more blocks",
    nvidia=("LaunchConfiguration", "SOLBottleneck"),
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding about all profiled launches that show it."""
    yield from kernel_findings(trace, "kernel-too-small", ADVICE)
