"""Gradients stay in memory while the next forward pass runs.

## What it looks for
Gradients that were there before the optimizer's step and are still there in the forward pass after
it, where the peak is. Blocks are gradients by the stack that allocated them, or by their size
and life; a peak elsewhere in the step is not lowered by setting them to None, and is no finding.

## Why it matters
They are zeroed and written again; until then their memory could hold activations.

## How to fix it
`optimizer.zero_grad(set_to_none=True)`, which is the default since PyTorch 2.0.

## When to ignore it
Where gradients are views of one flat buffer (DDP with gradient_as_bucket_view, FSDP), or something
reads them after the step.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import SNAPSHOT_OF_TRAINING
from pinchpoint.diagnosis.rule import NO_HINT, About, Rule
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("allocations",),
    record=SNAPSHOT_OF_TRAINING,
    about=About.MEMORY,
    advice=NO_HINT,
    confirm="pinchpoint memory BEFORE --compare AFTER",
)


def check(trace: Trace) -> Iterator[Found | Small]:
    """Gradients that are live at the peak without need."""
    from pinchpoint.analysis.memory.shortage import MATERIAL_PEAK_RATIO, size
    from pinchpoint.analysis.memory.what_if import what_ifs
    from pinchpoint.diagnosis.rules.memory._histories import judged

    for history in judged(trace):
        answer = next((a for a in what_ifs(history) if a.id == "set-to-none"), None)
        peak = history.replay.peak("requested").bytes
        if answer is None:
            continue
        if answer.saved_bytes < MATERIAL_PEAK_RATIO * peak:
            yield Small(answer.saved_bytes / peak, MATERIAL_PEAK_RATIO, "the peak")
            continue
        yield Found(
            summary=(
                f"Gradients stay through the forward pass: {size(answer.saved_bytes)} of the peak"
                f" of {size(peak)}"
            ),
            evidence=(
                Evidence("gradients that could be gone", answer.saved_bytes, "bytes"),
                Evidence("peak without them", answer.peak_bytes, "bytes"),
            ),
            cost_ns_per_step=None,
            saving_bytes=answer.saved_bytes,
            fix="Set gradients to None between the optimizer's step and the next forward pass",
            hint="optimizer.zero_grad(set_to_none=True)",
            consequence=f"the peak is {size(answer.saved_bytes)} higher than it needs to be",
        )
