"""Outputs pile up on the device.

## What it looks for
One or a few results of a forward pass that every step leaves behind, while everything else of the
pass is freed inside the model: no graph is involved. Without memory events: driver allocations in
every step of a loop that records no graph and gives nothing back.

## Why it matters
Logits of every batch on the device add up to the whole evaluation set times the number of classes.

## How to fix it
Reduce each batch at once (a count, a sum), or move what is needed to the host in time.

## When to ignore it
Where all results are needed together on the device and are known to fit.
"""

from collections.abc import Iterator

from pinchpoint.analysis.memory.allocations import driver_growth, runs_backward, unused_nodes
from pinchpoint.analysis.memory.growth import MATERIAL_BYTES_PER_STEP, growth
from pinchpoint.analysis.memory.shortage import place, size
from pinchpoint.analysis.replay import DropSyncs
from pinchpoint.diagnosis.device_work import location_of
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import MORE_STEPS, SNAPSHOT_OF_FIVE_STEPS
from pinchpoint.diagnosis.rule import About, NotChecked, Rule
from pinchpoint.diagnosis.rules.memory._histories import judged
from pinchpoint.trace import Trace

RULE = Rule(needs=(), record=SNAPSHOT_OF_FIVE_STEPS, about=About.MEMORY, leak="results")


def check(trace: Trace) -> Iterator[Found]:
    """Results that every step leaves behind."""
    if trace.allocations is None or not len(trace.allocations):
        yield from _by_driver_calls(trace)
        return
    for history in judged(trace):
        found = growth(history)
        if found.why_not:
            raise NotChecked(found.why_not, MORE_STEPS if found.too_short else RULE.record)
        for leak in found.leaks:
            if leak.kind != "results" or leak.bytes_per_step < MATERIAL_BYTES_PER_STEP:
                continue
            yield Found(
                summary=(
                    f"Each step keeps {size(leak.bytes_per_step)} of results on the device,"
                    f" through {place(leak.place)}"
                ),
                evidence=(
                    Evidence("kept per step", leak.bytes_per_step, "bytes"),
                    Evidence("kept per step as allocated", leak.allocated_per_step, "bytes"),
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


def _by_driver_calls(trace: Trace) -> Iterator[Found]:
    """Without memory events: memory is bought in every step although no graph is recorded."""
    if trace.api_calls is None:
        raise NotChecked("the recording has no memory events")
    grown = driver_growth(trace)
    if grown is None or unused_nodes(trace) is not None or runs_backward(trace):
        raise NotChecked("the recording has no memory events")
    calls = trace.api_calls
    parent = calls.value("host_op", int(grown.calls[-1]))
    yield Found(
        summary=(
            f"Every step buys device memory ({grown.calls_per_step:.3g} driver allocations) and"
            " gives none back, without a graph: results are kept"
        ),
        evidence=(
            Evidence("driver allocations", round(grown.calls_per_step, 2), "per step"),
            Evidence("bought at least", grown.at_least_bytes_per_step, "bytes per step"),
            Evidence("time in them", grown.ns_per_step, "ns per step"),
        ),
        cost_ns_per_step=grown.ns_per_step,
        changes=(DropSyncs(grown.calls),),
        location=None if parent is None else location_of(trace, int(parent)),
        fix="Reduce each batch to what is needed, or move it to the host in time",
        hint="right += (logits.argmax(-1) == y).sum()   # not kept.append(logits)",
        consequence=(
            f"device memory grows by {size(grown.at_least_bytes_per_step)} a step at least"
        ),
        confirm="record a memory snapshot of five steps, then: pinchpoint memory SNAPSHOT",
        confidence="medium",
    )
