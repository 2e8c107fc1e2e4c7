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

from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.rules.kernels._launches import KERNEL_RULE
from pinchpoint.trace import Trace

RULE = KERNEL_RULE


def check(trace: Trace) -> Iterator[Found]:
    """Launches whose warps wait mostly for one reason; the fix is that of the costliest."""
    from pinchpoint.analysis.limits.counter_issues import STALLS, IssueKind, examined_launches

    stalled = [
        (examined.facts.duration_ns or 0.0, issue.reason)
        for examined in examined_launches(trace)
        for issue in examined.issues
        if issue.reason is not None
    ]
    if not stalled:
        return
    reason = max(stalled)[1]
    from pinchpoint.diagnosis.rules.kernels._launches import Words, kernel_findings

    words = Words(
        what=f"waits mostly for one thing ({reason.replace('_', ' ')})",
        fix=STALLS.get(reason, "Look up the reason in the guide of Nsight Compute"),
        nvidia=("CPIStall",),
    )
    yield from kernel_findings(trace, IssueKind.WARP_STALLS, words)
