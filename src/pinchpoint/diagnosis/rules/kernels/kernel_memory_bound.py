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

from functools import partial

from pinchpoint.analysis.limits.counter_issues import IssueKind
from pinchpoint.diagnosis.rules.kernels._launches import TORCH_HINT_RULE, Words, kernel_findings

RULE = TORCH_HINT_RULE

check = partial(
    kernel_findings,
    kind=IssueKind.MEMORY_BOUND,
    words=Words(
        what="is limited by memory bandwidth",
        fix="Move fewer bytes: fuse with neighbouring kernels, use narrower types",
        hint="torch.compile(model)  # fuses elementwise chains",
        nvidia=("SOLBottleneck", "MemoryCacheAccessPattern"),
    ),
)
