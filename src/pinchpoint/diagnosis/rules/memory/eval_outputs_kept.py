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

from pinchpoint.diagnosis.evidence.device_work import location_of
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import SNAPSHOT_OF_FIVE_STEPS
from pinchpoint.diagnosis.rule import About, NotChecked, Rule
from pinchpoint.trace import Trace

RULE = Rule(
    needs=(),
    record=SNAPSHOT_OF_FIVE_STEPS,
    about=About.MEMORY,
    leak="results",
    confirm="pinchpoint memory BEFORE --compare AFTER",
)

_FIX = "Reduce each batch to what is needed, or move it to the host in time"
_HINT = "right += (logits.argmax(-1) == y).sum()   # not kept.append(logits)"


def check(trace: Trace) -> Iterator[Found]:
    """Results that every step leaves behind."""
    if trace.allocations is None or not len(trace.allocations):
        yield from _by_driver_calls(trace)
        return
    from pinchpoint.analysis.memory.shortage import place, size
    from pinchpoint.diagnosis.rules.memory._histories import leaks, left_behind

    for _, leak in leaks(trace, RULE):
        yield left_behind(
            leak,
            summary=(
                f"Each step keeps {size(leak.bytes_per_step)} of results on the device,"
                f" through {place(leak.place)}"
            ),
            fix=_FIX,
            hint=_HINT,
        )


def _by_driver_calls(trace: Trace) -> Iterator[Found]:
    """Without memory events: memory is bought in every step although no graph is recorded."""
    if trace.api_calls is None:
        raise NotChecked("the recording has no memory events")
    from pinchpoint.analysis.memory.allocations import driver_growth, runs_backward, unused_nodes

    grown = driver_growth(trace)
    if grown is None or unused_nodes(trace) is not None or runs_backward(trace):
        raise NotChecked("the recording has no memory events")
    parent = trace.api_calls.value("host_op", int(grown.calls[-1]))
    from pinchpoint.diagnosis.rules.memory._histories import bought

    yield bought(
        grown,
        summary=(
            f"Every step buys device memory ({grown.calls_per_step:.3g} driver allocations) and"
            " gives none back, without a graph: results are kept"
        ),
        location=None if parent is None else location_of(trace, int(parent)),
        fix=_FIX,
        hint=_HINT,
    )
