"""Activations are most of the peak, and memory is short.

## What it looks for
A request that failed, retries, or a device that is nearly full, while activations kept for the
backward pass are the largest part of what is live, each told by the stack that allocated it and by
its life. Where blocks of unknown use are the largest part (they were there before the recording,
or have no stack), it is not checked. Memory that is full in pieces is memory-fragmentation.

## Why it matters
Activations grow with batch, sequence length and depth: they decide the largest batch that fits.

## How to fix it
Checkpoint the layers (one more forward pass buys most of their memory), use bf16 autocast, a
smaller batch with accumulation, or shorter sequences.

## When to ignore it
Where memory is not short: activations are what training memory is for.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import Need, Record
from pinchpoint.diagnosis.rule import NO_HINT, About, Rule
from pinchpoint.trace import Trace

if TYPE_CHECKING:
    from pinchpoint.analysis.memory.history import History
    from pinchpoint.analysis.memory.owners.owners import MemoryCategory


RULE = Rule(
    needs=("allocations",),
    record=Record(
        "a memory snapshot of the failing step, or of one that nearly fails", Need.SNAPSHOT
    ),
    about=About.MEMORY,
    explains_full_memory=True,
    advice=NO_HINT,
    confirm="pinchpoint memory BEFORE --compare AFTER",
)


def check(trace: Trace) -> Iterator[Found]:
    """Activations where memory is short."""
    from pinchpoint.analysis.memory.composition import largest_category
    from pinchpoint.analysis.memory.owners.owners import MemoryCategory
    from pinchpoint.analysis.memory.shortage import describe, pressure
    from pinchpoint.diagnosis.rules.memory._histories import judged, owners_known

    for history in judged(trace):
        signs = pressure(trace, history)
        failure = signs.failure
        event = failure.event if failure else history.peak_event
        largest = largest_category(history, event)
        fragmented = failure is not None and failure.fragmented
        if signs.short and not fragmented:
            owners_known(history, event)
        if not signs.short or fragmented or largest != MemoryCategory.ACTIVATION:
            continue
        held = history.bytes_of(event)
        yield _finding(history, event, held, describe(history, signs))


def _finding(
    history: "History", event: int, held: "dict[MemoryCategory, int]", shortage: tuple[str, str]
) -> Found:
    from pinchpoint.analysis.memory.owners.owners import MemoryCategory

    live, activations = sum(held.values()), held[MemoryCategory.ACTIVATION]
    from pinchpoint.analysis.memory.checkpointing import checkpointing

    found = checkpointing(history)
    evidence = [
        Evidence("activations", activations, "bytes"),
        Evidence("live", live, "bytes"),
    ]
    if found:
        evidence.append(Evidence("saved by checkpointing", found.saved_bytes, "bytes"))
    from pinchpoint.analysis.memory.shortage import place, size

    summary = f"{shortage[0]}: {100 * activations / live:.0f} % of {size(live)} are activations"
    if found:
        summary += f", most of them of the {len(found.layers)} layers called at {place(found.line)}"
    return Found(
        summary=summary,
        evidence=tuple(evidence),
        cost_ns_per_step=None,
        saving_bytes=found.saved_bytes if found else activations,
        location=Location(found.line.file, found.line.line, found.line.function) if found else None,
        fix="Checkpoint the layers, or use a smaller batch",
        hint="x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
        consequence=shortage[1],
    )
