"""Evaluation saves activations for a backward pass that never comes.

## What it looks for
Forward passes most of whose blocks outlive the modules that made them, although no backward pass
uses them. Without a graph only the results outlive the model. Without memory events: autograd
nodes that are recorded step after step while no backward pass runs.

## Why it matters
The activations of the whole model are kept until the output is dropped, twice if the next output is
computed before; evaluation then needs as much memory as training, or is limited to its batch size.

## How to fix it
Run it under `torch.inference_mode()` or `torch.no_grad()`; `model.eval()` does not do that.

## When to ignore it
Where gradients with respect to the input are taken later.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.evidence.device_work import location_of
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import SNAPSHOT_OF_EVALUATION
from pinchpoint.diagnosis.rule import NO_HINT, About, NotChecked, Rule
from pinchpoint.trace import Trace

RULE = Rule(needs=(), record=SNAPSHOT_OF_EVALUATION, about=About.MEMORY, advice=NO_HINT)


def check(trace: Trace) -> Iterator[Found | Small]:
    """Graphs without a backward pass."""
    if trace.allocations is None or not len(trace.allocations):
        yield from _by_nodes(trace)
        return
    from pinchpoint.analysis.memory.allocations import unused_graphs
    from pinchpoint.analysis.memory.shortage import MATERIAL_PEAK_RATIO, place, size
    from pinchpoint.diagnosis.rules.memory._histories import judged

    for history in judged(trace):
        found = unused_graphs(history)
        peak = history.replay.peak("requested").bytes
        if found is None:
            continue
        if found.peak_bytes < MATERIAL_PEAK_RATIO * peak:
            yield Small(found.peak_bytes / peak, MATERIAL_PEAK_RATIO, "the peak")
            continue
        yield Found(
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


def _by_nodes(trace: Trace) -> Iterator[Found | Small]:
    """Without memory events: recorded nodes, none of which is run backward."""
    from pinchpoint.analysis.memory.allocations import driver_growth, unused_nodes

    found = unused_nodes(trace)
    if trace.host_ops is None or not len(trace.host_ops):
        raise NotChecked("the recording has no operators")
    if found is None or driver_growth(trace) is not None:
        return
    if found.at_most_bytes is None:
        raise NotChecked("graphs are recorded and not used; how large they are is not known")
    capacity = max((d.memory_bytes or 0 for d in trace.devices), default=0)
    from pinchpoint.analysis.memory.shortage import MATERIAL_DEVICE_RATIO, size

    if not capacity:
        return
    if found.at_most_bytes < MATERIAL_DEVICE_RATIO * capacity:
        share = found.at_most_bytes / capacity
        yield Small(share, MATERIAL_DEVICE_RATIO, "the device's memory")
        return
    yield Found(
        summary=(
            f"Each step records {found.nodes_per_step:.0f} graph nodes, and no backward pass runs:"
            f" up to {size(found.at_most_bytes)} of activations are kept in vain"
        ),
        evidence=(
            Evidence("nodes recorded", round(found.nodes_per_step, 1), "per step"),
            Evidence("kept at most", found.at_most_bytes, "bytes"),
        ),
        cost_ns_per_step=None,
        saving_bytes=found.at_most_bytes,
        location=location_of(trace, found.host_op),
        fix="Evaluate under torch.inference_mode() or torch.no_grad()",
        hint="with torch.inference_mode():\n    out = model(x)",
        consequence=f"up to {size(found.at_most_bytes)} of device memory are not needed",
        confirm="record a memory snapshot of two steps, then: pinchpoint memory SNAPSHOT",
        confidence="medium",
    )
