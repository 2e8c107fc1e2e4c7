"""Outputs pile up on the device.

## What it looks for
One or a few results of a forward pass that every step leaves behind, while everything else of the
pass is freed inside the model: no graph is involved.

## Why it matters
Logits of every batch on the device add up to the whole evaluation set times the number of classes.

## How to fix it
Reduce each batch at once (a count, a sum), or move what is needed to the host in time.

## When to ignore it
Where all results are needed together on the device and are known to fit.
"""

from collections.abc import Iterator

from pinchpoint.analysis.memory.growth import MATERIAL_BYTES_PER_STEP, growth
from pinchpoint.analysis.memory.history import recorded_histories
from pinchpoint.analysis.memory.wording import place, size
from pinchpoint.diagnosis.rule import Evidence, Finding, Location, NotChecked
from pinchpoint.trace import Trace

NEEDS = ("allocations",)
RECORD = "a memory snapshot of five steps or more, or a trace with profile_memory=True"


def check(trace: Trace) -> Iterator[Finding]:
    """Results that every step leaves behind."""
    for history in recorded_histories(trace):
        found = growth(history)
        if found.why_not:
            raise NotChecked(found.why_not, RECORD)
        for leak in found.leaks:
            if leak.kind != "results" or leak.bytes_per_step < MATERIAL_BYTES_PER_STEP:
                continue
            yield Finding(
                summary=(
                    f"Each step keeps {size(leak.bytes_per_step)} of results on the device,"
                    f" through {place(leak.place)}"
                ),
                evidence=(
                    Evidence("kept per step", leak.bytes_per_step, "bytes"),
                    Evidence("blocks per step", round(leak.blocks_per_step, 1), "count"),
                    Evidence("kept in the recording", leak.total_bytes, "bytes"),
                ),
                cost_ns_per_step=None,
                saving_bytes=leak.total_bytes,
                location=leak.place
                and Location(leak.place.file, leak.place.line, leak.place.function),
                fix="Reduce each batch to what is needed, or move it to the host in time",
                hint="right += (logits.argmax(-1) == y).sum()   # not kept.append(logits)",
                consequence=f"device memory grows by {size(leak.bytes_per_step)} a step",
                confirm="pinchpoint memory BEFORE --compare AFTER",
            )
