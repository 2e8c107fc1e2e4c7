"""A product finds little of its data in L2.

## What it looks for
Products, convolutions and attention profiled by Nsight Compute with an L2 hit rate below 20 % while
device memory is at least 60 % busy.

## Why it matters
These kernels reuse their data; a low hit rate means that tiles are visited in an order that throws
them out of the cache before they are used again.

## How to fix it
Visit tiles in groups (the group-M ordering of Triton's matmul), use larger tiles, smaller types.

## When to ignore it
Work that passes over its data once cannot hit, and is not judged here.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.kernel_findings import NEEDS, RECORD, Advice, kernel_findings
from pinchpoint.diagnosis.rule import Finding
from pinchpoint.trace import Trace

__all__ = ["NEEDS", "RECORD", "check"]

ADVICE = Advice(
    what="misses in L2",
    fix="Visit tiles in groups so that they are reused while they are in L2",
    nvidia=("MemoryL2Compression",),
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding about all profiled launches that show it."""
    yield from kernel_findings(trace, "kernel-l2-misses", ADVICE)
