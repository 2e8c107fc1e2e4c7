"""A function passes over memory several times as often as it needs, and nothing else says why.

## What it looks for
Elementwise and reducing operators that one call of a function runs in a row, with the backward pass
of that call. Together they need their inputs read once for each reduction and their results
written once; tensors in between need not exist. Named is a function whose rows take three times
that, if one pass each would make the device work at least 20 % of the step less. It yields to every
other finding that explains the same time. Shapes and Python functions have to be recorded.

## Why it matters
Norms, losses, masks and metrics written by hand are a dozen kernels that each read and write
everything. None of them is slow by itself, so no operator shows it.

## How to fix it
Use the library's fused operation, or compile the function.

## When to ignore it
Where operators need the whole result of the one before them, and cannot be one kernel.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.evidence.functions import far_functions, share_of_step
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import SHAPES_AND_STACKS
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=SHAPES_AND_STACKS,
    residual=True,
    knobs=("compile",),
    advice=NO_HINT,
)

# Of the step: where no other way is known, only much is worth the search. A whole row is known less
# well than an operator (0.15 there).
LEAST_GAIN_RATIO = 0.2
MOST_TOLD = 2  # the engine drops those that other findings explain


def check(trace: Trace) -> Iterator[Found]:
    """Functions far from one pass, most gain first."""
    far = far_functions(trace, lambda row: row.turns == 1)
    worth = [one for one in far if share_of_step(trace, one.saving_ns) >= LEAST_GAIN_RATIO]
    for one in worth[:MOST_TOLD]:
        yield Found(
            summary=(
                f"{one.name} takes {duration(one.work.ns_per_step)} of the device's time a step in"
                f" {one.work.count:.0f} kernels that each pass over memory; one pass for each row"
                f" of them would take {duration(one.needs_ns)}"
            ),
            evidence=one.evidence,
            cost_ns_per_step=one.work.ns_per_step,
            changes=one.changes,
            location=one.work.place,
            fix="Use the library's fused operation, or compile the function",
            hint="@torch.compile  # on the function",
            confidence="low",
        )
