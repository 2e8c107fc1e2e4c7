"""Optimizer state is most of what is live.

## What it looks for
State of the optimizer that is more than half of the peak, or the largest part of it where memory is
short: blocks whose stack, or size and life, is that of an optimizer's step. Parameters and state
that were there before the recording look alike; where such blocks of unknown use are the largest
part and memory is short, it is not checked.

## Why it matters
Adam keeps two full-size copies of the parameters, usually in 32 bits, from the first step on.

## How to fix it
An optimizer with 8-bit or factored state, state shared between ranks (ZeRO, FSDP), or in host
memory.

## When to ignore it
Where everything fits and no larger batch is wanted.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import Need, Record
from pinchpoint.diagnosis.rule import About, Rule
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("allocations",),
    record=Record("a memory snapshot of two training steps", Need.SNAPSHOT),
    about=About.MEMORY,
    explains_full_memory=True,
    confirm="pinchpoint memory BEFORE --compare AFTER",
)

MAJOR_RATIO = 0.5  # of the peak: more than parameters, gradients and activations together


def check(trace: Trace) -> Iterator[Found]:
    """State that dominates."""
    from pinchpoint.analysis.memory.composition import largest_category
    from pinchpoint.analysis.memory.owners.owners import MemoryCategory
    from pinchpoint.analysis.memory.shortage import describe, pressure, size
    from pinchpoint.analysis.memory.what_if import what_ifs
    from pinchpoint.diagnosis.rules.memory._histories import judged, owners_known

    for history in judged(trace):
        signs = pressure(trace, history)
        fragmented = signs.failure is not None and signs.failure.fragmented
        event = signs.failure.event if signs.failure else history.peak_event
        if signs.short and not fragmented:
            owners_known(history, event)
        held = history.bytes_of(event)
        live, state = sum(held.values()), held[MemoryCategory.OPTIMIZER_STATE]
        largest = largest_category(history, event) == MemoryCategory.OPTIMIZER_STATE
        if fragmented or not (state > MAJOR_RATIO * live or (signs.short and largest)):
            continue
        answer = next((a for a in what_ifs(history) if a.id == "8-bit-optimizer"), None)
        short = describe(history, signs) if signs.short else ("At the peak", "")
        yield Found(
            summary=f"{short[0]}: {100 * state / live:.0f} % of {size(live)} are optimizer state",
            evidence=(
                Evidence("optimizer state", state, "bytes"),
                Evidence("parameters", held[MemoryCategory.PARAMETER], "bytes"),
                Evidence("live", live, "bytes"),
            ),
            cost_ns_per_step=None,
            saving_bytes=answer.saved_bytes if answer else state,
            fix="Use an optimizer with 8-bit or factored state, or share the state between ranks",
            consequence=short[1] or f"{size(state)} are held from the first step on",
        )
