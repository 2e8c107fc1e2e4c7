"""Evaluation saves activations for a backward pass that never comes.

## What it looks for
Forward passes most of whose blocks outlive the modules that made them, although no backward pass
uses them. Without a graph only the results outlive the model.

## Why it matters
The activations of the whole model are kept until the output is dropped, twice if the next output is
computed before; evaluation then needs as much memory as training, or is limited to its batch size.

## How to fix it
Run it under `torch.inference_mode()` or `torch.no_grad()`; `model.eval()` does not do that.

## When to ignore it
Where gradients with respect to the input are taken later.
"""

from collections.abc import Iterator

from pinchpoint.analysis.memory.evaluation import unused_graphs
from pinchpoint.analysis.memory.history import recorded_histories
from pinchpoint.analysis.memory.pressure import MATERIAL_PEAK_RATIO
from pinchpoint.analysis.memory.wording import place, size
from pinchpoint.diagnosis.rule import Evidence, Finding, Location
from pinchpoint.trace import Trace

NEEDS = ("allocations",)
RECORD = "a memory snapshot, or a trace with profile_memory=True, of two evaluation steps or more"


def check(trace: Trace) -> Iterator[Finding]:
    """Graphs without a backward pass."""
    for history in recorded_histories(trace):
        found = unused_graphs(history)
        peak = history.replay.peak("requested").bytes
        if found is None or found.peak_bytes < MATERIAL_PEAK_RATIO * peak:
            continue
        yield Finding(
            summary=(
                f"{found.passes} forward passes keep a graph that no backward pass uses: up to"
                f" {size(found.peak_bytes)} of activations at once, from {place(found.place)}"
            ),
            evidence=(
                Evidence("activations kept in vain", found.peak_bytes, "bytes"),
                Evidence("peak", peak, "bytes"),
                Evidence("passes", found.passes, "count"),
            ),
            cost_ns_per_step=None,
            saving_bytes=found.peak_bytes,
            location=found.place
            and Location(found.place.file, found.place.line, found.place.function),
            fix="Evaluate under torch.inference_mode() or torch.no_grad()",
            hint="with torch.inference_mode():\n    out = model(x)",
            consequence=f"{size(found.peak_bytes)} of {size(peak)} at the peak are not needed",
            confirm="pinchpoint memory BEFORE --compare AFTER",
        )
