"""The tensors of the loss set the peak.

## What it looks for
Blocks as large as the largest one that a loss function allocates: logits, their log-softmax, their
gradient. Together they are more than half of the peak, or the largest part where memory is short.
A stack through a loss function is the evidence; large blocks without one are no logits.

## Why it matters
Tokens times vocabulary times four bytes, three or four times over, can be more than the model.

## How to fix it
Compute the loss over chunks of tokens, or use a fused loss that never stores the logits.

## When to ignore it
Where the peak is elsewhere or nothing else needs the memory.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import SNAPSHOT_OF_TWO_STEPS
from pinchpoint.diagnosis.rule import About, Rule
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("allocations",),
    record=SNAPSHOT_OF_TWO_STEPS,
    about=About.MEMORY,
    explains_full_memory=True,
    confirm="pinchpoint memory BEFORE --compare AFTER",
)

MAJOR_RATIO = 0.5  # of the peak: more than everything else together
SHORT_RATIO = 0.35  # where memory is short: more than any other part usually is


def check(trace: Trace) -> Iterator[Found]:
    """Loss tensors that dominate the peak."""
    from pinchpoint.analysis.memory.composition import loss_blocks
    from pinchpoint.analysis.memory.shortage import place, pressure, size
    from pinchpoint.diagnosis.rules.memory._histories import judged

    for history in judged(trace):
        signs = pressure(trace, history)
        if signs.failure is not None and signs.failure.fragmented:
            continue
        event = signs.failure.event if signs.failure else history.peak_event
        found = loss_blocks(history, event)
        live = int(history.replay.requested[event]) if event >= 0 else 0
        needed = SHORT_RATIO if signs.short else MAJOR_RATIO
        if found is None or found.bytes < needed * live:
            continue
        yield Found(
            summary=(
                f"{found.blocks} tensors of {size(found.largest_bytes)} at the loss are"
                f" {100 * found.bytes / live:.0f} % of the peak, from {place(found.place)}"
            ),
            evidence=(
                Evidence("tensors of the loss", found.bytes, "bytes"),
                Evidence("one of them", found.largest_bytes, "bytes"),
                Evidence("peak", live, "bytes"),
            ),
            cost_ns_per_step=None,
            saving_bytes=found.bytes - found.largest_bytes,
            location=found.place
            and Location(found.place.file, found.place.line, found.place.function),
            fix="Compute the loss over chunks of tokens, or with a fused loss",
            consequence=f"{size(found.bytes)} of {size(live)} at the peak",
        )
