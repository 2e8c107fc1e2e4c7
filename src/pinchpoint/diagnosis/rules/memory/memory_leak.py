"""Something outside of the model's passes is kept from step to step.

## What it looks for
Blocks that the same line allocates in every step, outside of forward and backward passes, and that
are still there when the next step has ended. Caches that fill up and stop, and blocks that replace
older ones, do not grow; what passes leave behind is graph-retained or eval-outputs-kept. Not
checked over fewer steps than growth needs to show.

## Why it matters
Memory grows by the same amount each step until a request fails.

## How to fix it
Find what holds them: a list, a cache without a bound, a closure. Drop it, bound it, or keep it on
the host.

## When to ignore it
Where the growth ends by design, such as a replay buffer that fills up.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import SNAPSHOT_OF_FIVE_STEPS
from pinchpoint.diagnosis.rule import About, Rule
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("allocations",),
    record=SNAPSHOT_OF_FIVE_STEPS,
    about=About.MEMORY,
    leak="other",
    confirm="pinchpoint memory BEFORE --compare AFTER",
)


def check(trace: Trace) -> Iterator[Found]:
    """Other blocks that every step leaves behind."""
    from pinchpoint.analysis.memory.shortage import place, size
    from pinchpoint.diagnosis.rules.memory._histories import leaks, left_behind

    for _, leak in leaks(trace, RULE):
        yield left_behind(
            leak,
            blocks=False,
            summary=(
                f"Each step leaves {size(leak.bytes_per_step)} behind, allocated at"
                f" {place(leak.place, leak.operation)}"
            ),
            fix="Find what holds these tensors, and drop or bound it",
        )
