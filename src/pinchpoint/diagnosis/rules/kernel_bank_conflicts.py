"""Threads of a warp hit the same bank of shared memory.

## What it looks for
Launches profiled by Nsight Compute in which at least a tenth of the shared-memory wavefronts are
caused by bank conflicts. Without those metrics, NVIDIA's rule SharedMemoryConflicts is taken at its
word.

## Why it matters
Conflicting accesses are served one after the other.

## How to fix it
Pad rows by one element, swizzle the addresses, or use wider accesses.

## When to ignore it
Where shared memory is far from being the limit.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.kernel_findings import NEEDS, RECORD, Advice, kernel_findings
from pinchpoint.diagnosis.rule import Finding
from pinchpoint.trace import Trace

__all__ = ["NEEDS", "RECORD", "check"]

ADVICE = Advice(
    what="loses time to bank conflicts",
    fix="Pad or swizzle the shared-memory layout",
    nvidia=("SharedMemoryConflicts", "UncoalescedSharedAccess"),
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding about all profiled launches that show it."""
    yield from kernel_findings(trace, "kernel-bank-conflicts", ADVICE)
