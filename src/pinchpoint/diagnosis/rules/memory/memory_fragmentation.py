"""The allocator holds much more memory than is in use, in pieces that do not fit.

## What it looks for
A request that failed, or made the allocator give memory back and ask again, although enough was
free in pieces; or steps of different sizes that make it take new memory while as much lies in its
cache.
Segments with nothing in them do not count: the allocator gives them back when it must.

## Why it matters
Free memory inside partly used segments serves only requests that fit into one piece. Each time the
allocator gives memory back and asks again, the device waits for the driver.

## How to fix it
Round sizes up to few buckets, allocate long-lived tensors first, or let segments grow:
`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.

## When to ignore it
Where nothing else wants the memory and no request fails.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pinchpoint.analysis.memory.allocations import driver_retries
from pinchpoint.analysis.memory.shortage import pressure, size
from pinchpoint.analysis.replay import DropSyncs
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import Need, Record
from pinchpoint.diagnosis.rule import NO_HINT, About, NotChecked, Rule
from pinchpoint.trace import Trace

if TYPE_CHECKING:
    from pinchpoint.analysis.memory.history import History
    from pinchpoint.analysis.memory.waste import Waste


RULE = Rule(
    needs=(),
    record=Record(
        "a memory snapshot: torch.cuda.memory._dump_snapshot",
        Need.SNAPSHOT,
        Record("a memory snapshot", Need.SNAPSHOT),
    ),
    about=About.MEMORY,
    knobs=("expandable_segments",),
    advice=NO_HINT,
)

_HINT = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  # before the program starts"


def check(trace: Trace) -> Iterator[Found]:
    """Failed requests, retries, and growth that fragmentation causes."""
    if trace.allocations is None or not len(trace.allocations):
        yield from _by_driver_calls(trace)
        return
    from pinchpoint.analysis.memory.failures import failures
    from pinchpoint.analysis.memory.waste import waste
    from pinchpoint.diagnosis.rules.memory._histories import judged

    for history in judged(trace):
        if not history.has_layout:
            continue
        found = waste(history)
        broken = [f for f in failures(history) if f.fragmented]
        if broken:
            last = broken[-1]
            yield _finding(
                history,
                f"A request of {size(last.wanted_bytes)} failed with"
                f" {size(last.usable_free_bytes)} free in pieces of at most"
                f" {size(last.largest_hole_bytes)}",
                found,
                last.usable_free_bytes,
            )
        elif _only_retries(trace, history):
            yield _finding(
                history,
                f"The allocator gave memory back and asked again {len(found.retries)} times",
                found,
                sum(r.freed_bytes for r in found.retries),
            )
        elif _by_varying_sizes(found):
            yield _finding(
                history,
                f"Steps of different sizes fragment the cache: {size(found.overhead_bytes)} more"
                f" reserved than ever used, {found.at_peak.partly_used} segments partly used at"
                " the peak",
                found,
                found.overhead_bytes,
            )


def _by_driver_calls(trace: Trace) -> Iterator[Found]:
    """Without memory events: operators that give memory back to the driver and ask again."""
    found = driver_retries(trace)
    if found is None:
        raise NotChecked("the recording has no memory events")
    yield Found(
        summary=(
            f"Operators make the allocator give memory back and ask again: {found.frees} driver"
            " frees inside operators"
        ),
        evidence=(
            Evidence("driver frees inside operators", found.frees, "count"),
            Evidence("time in these calls", found.ns_per_step, "ns per step"),
        ),
        cost_ns_per_step=found.ns_per_step,
        changes=(DropSyncs(found.calls),),
        fix="Round sizes up to few buckets, or let segments grow",
        hint=_HINT,
        confirm="record a memory snapshot, then: pinchpoint memory SNAPSHOT",
        confidence="medium",
    )


def _only_retries(trace: Trace, history: "History") -> bool:
    signs = pressure(trace, history)
    return signs.failure is None and signs.retries > 0


def _by_varying_sizes(found: "Waste") -> bool:
    from pinchpoint.analysis.memory.waste import OVERHEAD_RATIO, THOUGH_CACHED_RATIO, VARYING_RATIO

    return (
        found.varying >= VARYING_RATIO
        and found.overhead_bytes >= OVERHEAD_RATIO * found.active_peak_bytes
        and found.grown_though_cached_bytes >= THOUGH_CACHED_RATIO * found.grown_bytes
    )


def _finding(history: "History", summary: str, found: "Waste", at_stake: int) -> Found:
    expandable = bool(history.snapshot.settings.get("expandable_segments"))
    return Found(
        summary=summary,
        evidence=(
            Evidence("reserved at its peak", found.reserved_peak_bytes, "bytes"),
            Evidence("in use at its peak", found.active_peak_bytes, "bytes"),
            Evidence("free in used segments", found.at_peak.split_free_bytes, "bytes"),
            Evidence("segments partly used", found.at_peak.partly_used, "count"),
            Evidence("taken though cached", found.grown_though_cached_bytes, "bytes"),
            Evidence("retries", len(found.retries), "count"),
            Evidence("largest over smallest step", round(found.varying, 2), "ratio"),
        ),
        cost_ns_per_step=None,
        saving_bytes=at_stake,
        fix=(
            "Round sizes up to few buckets"
            if expandable
            else "Let segments grow, or round sizes up to few buckets"
        ),
        hint=None if expandable else _HINT,
        consequence=f"{size(at_stake)} of memory cannot be used",
        confirm="pinchpoint memory BEFORE --compare AFTER",
    )
