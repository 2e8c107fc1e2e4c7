"""Tensors that hold their graph are kept from step to step.

## What it looks for
Blocks that a forward pass allocates in every step and that are still there when the next step has
ended, most of the pass's blocks or what a loss holds after its backward pass. The line named is the
innermost one that only these blocks go through. Without memory events: driver allocations in
every step of a loop that gives nothing back, and recorded graph nodes that never run backward.

## Why it matters
A loss or output with a `grad_fn` keeps everything that its backward pass would need. Memory grows
by the same amount each step until a request fails.

## How to fix it
Keep the number, not the tensor: `.item()` where it is logged rarely, `.detach()` where it stays on
the device. Run evaluation under `torch.no_grad()`.

## When to ignore it
Where the loss of a few bytes a step is all that stays: it would take years to matter.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.evidence.device_work import location_of
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SNAPSHOT_OF_FIVE_STEPS
from pinchpoint.diagnosis.rule import NO_HINT, About, NotChecked, Rule
from pinchpoint.trace import Trace

RULE = Rule(
    needs=(),
    record=SNAPSHOT_OF_FIVE_STEPS,
    about=About.MEMORY,
    leak="graph",
    advice=NO_HINT,
    confirm="pinchpoint memory BEFORE --compare AFTER",
)

_FIX = "Keep a number or a detached tensor; evaluate under torch.no_grad()"
_HINT = "total += loss.item()        # or loss.detach()"


def check(trace: Trace) -> Iterator[Found]:
    """Graphs that every step leaves behind."""
    if trace.allocations is None or not len(trace.allocations):
        yield from _by_driver_calls(trace)
        return
    from pinchpoint.analysis.memory.shortage import place, size
    from pinchpoint.diagnosis.rules.memory._histories import leaks, left_behind

    for found, leak in leaks(trace, RULE):
        yield left_behind(
            leak,
            Evidence("growth of the least use per step", found.bytes_per_step, "bytes"),
            summary=(
                f"Each step leaves {size(leak.bytes_per_step)} behind: a graph and its"
                f" activations, kept through {place(leak.place)}"
            ),
            fix=_FIX,
            hint=_HINT,
        )


def _by_driver_calls(trace: Trace) -> Iterator[Found]:
    """Without memory events: memory is bought in every step, and nodes are never run backward."""
    if trace.api_calls is None:
        raise NotChecked("the recording has no memory events")
    from pinchpoint.analysis.memory.allocations import driver_growth, unused_nodes

    grown, nodes = driver_growth(trace), unused_nodes(trace)
    if grown is None or nodes is None:
        raise NotChecked("the recording has no memory events")
    from pinchpoint.diagnosis.rules.memory._histories import bought

    yield bought(
        grown,
        Evidence("nodes recorded", round(nodes.nodes_per_step, 1), "per step"),
        summary=(
            f"Every step buys device memory ({grown.calls_per_step:.3g} driver allocations) and"
            f" records {nodes.nodes_per_step:.0f} graph nodes that never run backward: their"
            " tensors are kept"
        ),
        location=location_of(trace, nodes.host_op),
        fix=_FIX,
        hint=_HINT,
    )
