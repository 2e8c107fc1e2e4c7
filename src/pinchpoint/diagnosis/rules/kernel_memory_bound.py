"""Kernels run at the speed of memory.

## What it looks for
Launches profiled by Nsight Compute whose FLOPs per byte lie below the machine balance (peak FLOP/s
over memory bandwidth), and whose memory system is at least 60 % busy.

## Why it matters
Such a kernel is as fast as its bytes: more arithmetic units, tensor cores or occupancy change
nothing. Only moving fewer bytes does.

## How to fix it
Fuse it with its neighbours so that intermediate results stay on the chip, store 16-bit instead of
32-bit numbers, read each value once.

## When to ignore it
At 80 % and more it is a good kernel for what it does; look at whether it is needed at all.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.kernel_findings import NEEDS, RECORD, Advice, kernel_findings
from pinchpoint.diagnosis.rule import Finding
from pinchpoint.trace import Trace

__all__ = ["NEEDS", "RECORD", "check"]

ADVICE = Advice(
    what="is limited by memory bandwidth",
    fix="Move fewer bytes: fuse with neighbouring kernels, use narrower types",
    hint="torch.compile(model)  # fuses elementwise chains",
    nvidia=("SOLBottleneck", "MemoryCacheAccessPattern"),
)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding about all profiled launches that show it."""
    yield from kernel_findings(trace, "kernel-memory-bound", ADVICE)
