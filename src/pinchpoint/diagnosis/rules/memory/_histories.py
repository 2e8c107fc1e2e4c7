"""What the rules about memory share: which devices can be judged, and what steps leave behind."""

from collections.abc import Iterator
from typing import Any

from pinchpoint.analysis.memory.allocations import DriverGrowth
from pinchpoint.analysis.memory.composition import largest_category
from pinchpoint.analysis.memory.growth import MATERIAL_BYTES_PER_STEP, Growth, Leak, growth
from pinchpoint.analysis.memory.history import History, recorded_histories
from pinchpoint.analysis.memory.owners.owners import MemoryCategory
from pinchpoint.analysis.memory.shortage import size
from pinchpoint.analysis.replay import DropSyncs
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import MORE_STEPS
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.trace import Trace


def judged(trace: Trace) -> tuple[History, ...]:
    """Devices whose history is known; NotChecked without any."""
    found = recorded_histories(trace)
    if not found:
        raise NotChecked(
            "its memory events do not say which block they are about, or are of the host alone"
        )
    return found


def owners_known(history: History, event: int) -> None:
    """NotChecked where what nobody is known to own is the largest part of the live memory.

    Blocks from before the recording have no stacks, and neither parameters nor a model that was
    loaded then can be told from anything else.
    """
    if largest_category(history, event) == MemoryCategory.UNKNOWN:
        raise NotChecked(
            "the largest part of the live memory was allocated before the recording, or has no"
            " stack that tells what it is"
        )


def leaks(trace: Trace, rule: Rule) -> Iterator[tuple[Growth, Leak]]:
    """What each step leaves behind, of the kind that the rule names and large enough to matter.

    NotChecked where leaks could not be looked for.
    """
    for history in judged(trace):
        found = growth(history)
        if found.why_not:
            raise NotChecked(found.why_not, MORE_STEPS if found.too_short else rule.record)
        for leak in found.leaks:
            if leak.kind == rule.leak and leak.bytes_per_step >= MATERIAL_BYTES_PER_STEP:
                yield found, leak


def left_behind(leak: Leak, *more: Evidence, blocks: bool = True, **said: Any) -> Found:
    """A leak as a finding: ``said`` has its summary, fix and hint."""
    count = Evidence("blocks per step", round(leak.blocks_per_step, 1), "count")
    return Found(
        evidence=(
            Evidence("kept per step", leak.bytes_per_step, "bytes"),
            Evidence("kept per step as allocated", leak.allocated_per_step, "bytes"),
            *((count,) if blocks else ()),
            Evidence("kept in the recording", leak.total_bytes, "bytes"),
            *more,
        ),
        saving_bytes=leak.total_bytes,
        location=leak.place and Location(leak.place.file, leak.place.line, leak.place.function),
        consequence=f"device memory grows by {size(leak.bytes_per_step)} a step",
        **said,
    )


def bought(grown: DriverGrowth, *more: Evidence, **said: Any) -> Found:
    """The same where only calls of the driver show it."""
    return Found(
        evidence=(
            Evidence("driver allocations", round(grown.calls_per_step, 2), "per step"),
            Evidence("bought at least", grown.at_least_bytes_per_step, "bytes per step"),
            Evidence("time in them", grown.ns_per_step, "ns per step"),
            *more,
        ),
        cost_ns_per_step=grown.ns_per_step,
        changes=(DropSyncs(grown.calls),),
        consequence=(
            f"device memory grows by {size(grown.at_least_bytes_per_step)} a step at least"
        ),
        confirm="record a memory snapshot of five steps, then: pinchpoint memory SNAPSHOT",
        confidence="medium",
        **said,
    )
