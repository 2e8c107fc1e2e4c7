"""One rank arrives late at collectives, and the others wait for it.

## What it looks for
Ranks that start the same collective at different times. The late rank has the shortest collective;
the others wait inside theirs and look slow. One rank's recording shows waiting, not who is waited
for: this is answered over all ranks, by `pinchpoint ranks`.

## Why it matters
A synchronous job runs at the pace of its slowest rank.

## How to fix it
Find what the late rank did just before (data, a slow kernel, clocks, garbage collection), and fix
that; or balance the work.

## When to ignore it
Lateness that changes from rank to rank and averages out.
"""

from collections.abc import Iterator

from pinchpoint.analysis.collectives import collectives
from pinchpoint.diagnosis.rule import Finding, NotChecked
from pinchpoint.trace import Trace

NEEDS = ("device_ops",)
RECORD = "all ranks of the same steps: pinchpoint ranks DIR"


def check(trace: Trace) -> Iterator[Finding]:
    """Declines for one rank of several; clear where there are no collectives."""
    if collectives(trace) is not None:
        raise NotChecked("one rank cannot tell who is late")
    yield from ()
