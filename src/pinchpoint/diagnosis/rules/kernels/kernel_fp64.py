"""Double precision units are busy.

## What it looks for
Launches profiled by Nsight Compute that keep the fp64 pipe more than 15 % busy while the fp32 pipe
is below 60 %.

## Why it matters
Double precision runs at half the rate of single precision on data-centre chips and at 1/32 or 1/64
on all others, and a literal without `f` is enough to cause it.

## How to fix it
Write literals with `f`, keep Python floats away from tensors of float64, create arrays as float32.

## When to ignore it
Where double precision is what the method needs.
"""

from functools import partial

from pinchpoint.analysis.limits.counter_issues import IssueKind
from pinchpoint.diagnosis.rules.kernels._launches import KERNEL_RULE, Words, kernel_findings

RULE = KERNEL_RULE

check = partial(
    kernel_findings,
    kind=IssueKind.FP64,
    words=Words(
        what="computes in double precision",
        fix="Use float32: literals with f, arrays created as float32",
        nvidia=("SOLFPRoofline",),
    ),
)
