"""Threads of a warp touch scattered addresses.

## What it looks for
Launches profiled by Nsight Compute in which more than a tenth of the L2 sectors asked for by global
loads and stores would not be needed if neighbouring threads used neighbouring addresses. Without
those metrics, NVIDIA's rule UncoalescedGlobalAccess is taken at its word.

## Why it matters
Memory moves in sectors of 32 bytes. Of a sector that is read for 4 bytes, 28 are wasted bandwidth.

## How to fix it
Let neighbouring threads read neighbouring elements: another layout, a transposition through shared
memory, another loop order.

## When to ignore it
Gathers over random indices have nothing to coalesce.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.kernel_findings import NEEDS, RECORD, Advice, kernel_findings
from pinchpoint.diagnosis.rule import Finding
from pinchpoint.trace import Trace

__all__ = ["NEEDS", "RECORD", "check"]

ADVICE = Advice(
    what="accesses memory uncoalesced",
    fix="Let neighbouring threads touch neighbouring addresses",
    nvidia=("UncoalescedGlobalAccess", "MemoryCacheAccessPattern"),
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding about all profiled launches that show it."""
    yield from kernel_findings(trace, "kernel-uncoalesced", ADVICE)
