"""A product does not use the tensor cores.

## What it looks for
Products, convolutions and attention profiled by Nsight Compute whose compute units are at least
60 % busy while the tensor pipe is below 5 %.

## Why it matters
Tensor cores multiply matrices an order of magnitude faster than the plain units.

## How to fix it
TF32 for float32 products, autocast to bf16, sizes that are multiples of 8 (16 for fp8).

## When to ignore it
Where results need full float32 or float64 products.
"""

from functools import partial

from pinchpoint.analysis.limits.counter_issues import IssueKind
from pinchpoint.diagnosis.rules.kernels._launches import TORCH_HINT_RULE, Words, kernel_findings

RULE = TORCH_HINT_RULE

check = partial(
    kernel_findings,
    kind=IssueKind.TENSOR_IDLE,
    words=Words(
        what="multiplies without the tensor cores",
        fix="Let float32 products use TF32, or use bf16; keep sizes multiples of 8",
        hint='torch.set_float32_matmul_precision("high")',
    ),
)
