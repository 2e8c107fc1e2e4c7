"""Registers spill to local memory.

## What it looks for
Launches profiled by Nsight Compute in which more than 5 % of the local-memory requests come from
spilled registers, or which execute spill instructions at all where that share was not collected.

## Why it matters
A spilled value goes through the caches to device memory and back.

## How to fix it
Smaller tiles, fewer live values, another register limit.

## When to ignore it
A few spills outside the inner loop cost nothing.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.kernel_findings import NEEDS, RECORD, Advice, kernel_findings
from pinchpoint.diagnosis.rule import Finding
from pinchpoint.trace import Trace

__all__ = ["NEEDS", "RECORD", "check"]

ADVICE = Advice(
    what="spills registers",
    fix="Use smaller tiles or raise the register limit",
    hint="__launch_bounds__, -maxrregcount  /  num_warps in Triton",
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding about all profiled launches that show it."""
    yield from kernel_findings(trace, "kernel-spills", ADVICE)
