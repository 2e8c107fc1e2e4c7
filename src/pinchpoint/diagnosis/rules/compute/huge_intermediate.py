"""A function makes tensors far larger than all it reads and returns, and reduces them again.

## What it looks for
Elementwise and reducing operators that one call of a function runs in a row, with a tensor in
between that is several times as large as all that the row reads from outside and leaves behind, and
too large for caches; together with the backward pass of that call. What one pass needs is its
inputs read once for each reduction, its results written once, and its arithmetic; such rows have to
take three times that, and 5 % of the step more. Shapes and Python functions have to be recorded.

## Why it matters
Broadcasting makes a tensor of all pairs (distances, masks, one-hot comparisons, overlaps) that is
written and read by one kernel after the other, while the inputs would fit into a cache.

## How to fix it
Say it as a matrix product where it is one (`|x|² - 2 x·y + |y|²`, `torch.cdist`); compile the
function, so that one kernel does it without the tensor; or go through it in pieces.

## When to ignore it
Where the large tensor itself is what is wanted, and read by operators that are not recorded.
"""

from collections.abc import Iterator

from pinchpoint.analysis.causal.passes import Row, rows_of_passes
from pinchpoint.analysis.memory.shortage import size
from pinchpoint.diagnosis.evidence.functions import far_functions, share_of_step
from pinchpoint.diagnosis.finding import Found, Small
from pinchpoint.diagnosis.record import SHAPES_AND_STACKS
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=SHAPES_AND_STACKS,
    parent="unfused-pointwise",
    advice=NO_HINT,
)

# A tensor against all that goes in and comes out: with less, it is one of several of their size.
LARGER_RATIO = 4.0
# Twice the second-level cache of an H100: what is smaller may never reach the memory.
LARGE_BYTES = 100_000_000
LEAST_GAIN_RATIO = 0.05  # of the step, as for operators that another way avoids


def check(trace: Trace) -> Iterator[Found | Small]:
    """Functions with such tensors, most gain first."""
    making = {row.function for row in rows_of_passes(trace) if _is_huge(row)}
    for one in far_functions(trace, lambda row: row.function in making):
        huge = [row for row in one.rows if _is_huge(row)]
        if not huge:
            continue
        share = share_of_step(trace, one.saving_ns)
        if share < LEAST_GAIN_RATIO:
            yield Small(share, LEAST_GAIN_RATIO)
            continue
        inside = max(row.inside_bytes for row in huge)
        outside = max(row.outside_bytes for row in huge)
        also = ", with its backward pass," if any(row.backward for row in one.rows) else ""
        yield Found(
            summary=(
                f"{one.name} makes a tensor of {size(inside)} in between, and reads and returns"
                f" {size(outside)}: {duration(one.work.ns_per_step)}"
                f" of each recorded step{also} where one"
                f" pass would take {duration(one.needs_ns)}"
            ),
            evidence=one.evidence_with(huge),
            cost_ns_per_step=one.work.ns_per_step,
            changes=one.changes,
            location=one.work.place,
            fix="Say it as a matrix product, compile the function, or go through it in pieces",
            hint="torch.cdist(x, y)  # or: x @ y.T; else @torch.compile on the function",
            confidence="medium",
        )


def _is_huge(row: Row) -> bool:
    return row.inside_bytes >= max(LARGE_BYTES, LARGER_RATIO * row.outside_bytes)
