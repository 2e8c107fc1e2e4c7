"""Warps wait mostly for one thing.

## What it looks for
Launches profiled by Nsight Compute in which one stall reason takes more than 30 % of the time
between two instructions of a warp, the schedulers issue less than 0.8 instructions a cycle, and no
unit is near its limit. "Selected" and "not selected" are not stalls.

## Why it matters
The reason points at the cause: memory latency (long scoreboard), shared memory and special
functions (short scoreboard, MIO throttle), barriers, the instruction queue of global memory (LG
throttle).

## How to fix it
By reason; the hint of the finding says how.

## When to ignore it
A kernel at 80 % of a unit stalls too: it waits for that unit.
"""

from collections.abc import Iterator

from pinchpoint.analysis.kernel_issues import STALLS, examined_launches
from pinchpoint.diagnosis.kernel_findings import NEEDS, RECORD, Advice, kernel_findings
from pinchpoint.diagnosis.rule import Finding
from pinchpoint.trace import Trace

__all__ = ["NEEDS", "RECORD", "check"]


def check(trace: Trace) -> Iterator[Finding]:
    """Launches whose warps wait mostly for one reason; the advice is that of the costliest."""
    stalled = [
        (examined.facts.duration_ns or 0.0, issue.unit.removeprefix("ratio:"))
        for examined in examined_launches(trace)
        for issue in examined.issues
        if issue.id == "kernel-warp-stalls"
    ]
    if not stalled:
        return
    reason = max(stalled)[1]
    advice = Advice(
        what=f"waits mostly for one thing ({reason.replace('_', ' ')})",
        fix=STALLS.get(reason, "Look up the reason in the guide of Nsight Compute"),
        nvidia=("CPIStall",),
    )
    yield from kernel_findings(trace, "kernel-warp-stalls", advice)
