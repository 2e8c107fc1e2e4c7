"""Memory of the host grows from step to step.

## What it looks for
Tensors of the host that every step leaves behind. Memory of loader workers is not in any recording
that is read today; the page says how to see it.

## Why it matters
Host memory runs out after hours. In workers the usual cause is a dataset of many small Python
objects: reading them touches their reference counts, which copies the pages that forked workers
share.

## How to fix it
Drop what is kept. For datasets: one array of fixed-width values in place of lists of objects, or
memory-mapped files.

## When to ignore it
Where the growth ends by design, as in a cache that fills.
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import MORE_STEPS, Need, Record
from pinchpoint.diagnosis.rule import About, NotChecked, Rule
from pinchpoint.trace import Trace

_OF_WORKERS = Record("the private memory of the loader's workers over time")

RULE = Rule(
    needs=("allocations",),
    record=Record(
        "the private memory of the loader's workers over time, or profile_memory=True",
        Need.PROFILE_MEMORY,
        _OF_WORKERS,
    ),
    about=About.MEMORY,
    confirm="pinchpoint memory BEFORE --compare AFTER",
)


def check(trace: Trace) -> Iterator[Found]:
    """Host tensors that every step leaves behind."""
    from pinchpoint.analysis.memory.history import histories
    from pinchpoint.analysis.memory.traced import HOST

    host = next((h for h in histories(trace) if h.device == HOST), None)
    if host is None:
        raise NotChecked("the recording has no memory of the host to speak of", _OF_WORKERS)
    from pinchpoint.analysis.memory.growth import MATERIAL_BYTES_PER_STEP, growth

    found = growth(host)
    if found.why_not:
        raise NotChecked(found.why_not, MORE_STEPS if found.too_short else RULE.record)
    from pinchpoint.analysis.memory.shortage import place, size

    for leak in found.leaks:
        if leak.bytes_per_step < MATERIAL_BYTES_PER_STEP:
            continue
        yield Found(
            summary=(
                f"Each step leaves {size(leak.bytes_per_step)} of host memory behind, allocated at"
                f" {place(leak.place, leak.operation)}"
            ),
            evidence=(
                Evidence("kept per step", leak.bytes_per_step, "bytes"),
                Evidence("kept in the recording", leak.total_bytes, "bytes"),
            ),
            cost_ns_per_step=None,
            saving_bytes=leak.total_bytes,
            location=leak.place and Location(leak.place.file, leak.place.line, leak.place.function),
            fix="Find what holds these tensors, and drop or bound it",
            consequence=f"host memory grows by {size(leak.bytes_per_step)} a step",
        )
