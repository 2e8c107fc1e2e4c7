"""Rank 0 does extra host work, and all others wait for it.

## What it looks for
Collectives at which rank 0 is always the last to arrive, after host work that the others do not
have: logging, evaluation, checkpoints. This is answered over all ranks, by `pinchpoint ranks`.

## Why it matters
What only rank 0 does costs every rank the same time.

## How to fix it
Move it off the path (a thread, a process, asynchronous saving), or share it among ranks.

## When to ignore it
At rare steps.
"""

from collections.abc import Iterator

from pinchpoint.analysis.collectives import collectives
from pinchpoint.diagnosis.rule import Finding, NotChecked
from pinchpoint.trace import Trace

NEEDS = ("device_ops",)
RECORD = "all ranks of the same steps: pinchpoint ranks DIR"
PARENT = "straggler-rank"


def check(trace: Trace) -> Iterator[Finding]:
    """Declines for one rank of several; clear where there are no collectives."""
    if collectives(trace) is not None:
        raise NotChecked("one rank cannot tell who is late")
    yield from ()
