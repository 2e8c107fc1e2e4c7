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

from pinchpoint.analysis.memory.growth import MATERIAL_BYTES_PER_STEP, growth
from pinchpoint.analysis.memory.shortage import place, size
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import MORE_STEPS, SNAPSHOT_OF_FIVE_STEPS
from pinchpoint.diagnosis.rule import About, NotChecked, Rule
from pinchpoint.diagnosis.rules.memory._histories import judged
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
    for history in judged(trace):
        found = growth(history)
        if found.why_not:
            raise NotChecked(found.why_not, MORE_STEPS if found.too_short else RULE.record)
        for leak in found.leaks:
            if leak.kind != "other" or leak.bytes_per_step < MATERIAL_BYTES_PER_STEP:
                continue
            yield Found(
                summary=(
                    f"Each step leaves {size(leak.bytes_per_step)} behind, allocated at"
                    f" {place(leak.place, leak.operation)}"
                ),
                evidence=(
                    Evidence("kept per step", leak.bytes_per_step, "bytes"),
                    Evidence("kept per step as allocated", leak.allocated_per_step, "bytes"),
                    Evidence("kept in the recording", leak.total_bytes, "bytes"),
                ),
                cost_ns_per_step=None,
                saving_bytes=leak.total_bytes,
                location=leak.place
                and Location(leak.place.file, leak.place.line, leak.place.function),
                fix="Find what holds these tensors, and drop or bound it",
                consequence=f"device memory grows by {size(leak.bytes_per_step)} a step",
            )
