"""Assembling the batch from tiny rows takes longer than the step.

## What it looks for
A loader whose batches have thousands of rows of at most 2 KiB, at some microseconds of a worker's
time (or the training thread's) for each, 2.5 at least: that is what fetching and stacking one row
costs, and leaves no time for anything else. Or a loader without workers that is seen to collate
most of the time, of samples that are small or of unknown size, or with a thousand operators and
more for one batch: samples that are lists of numbers give one tensor for each position. Stacking
large samples is one copy of memory, which is no matter of how they are fetched
(dataloader-starved).

## Why it matters
Fetching a row, wrapping it in a tensor and stacking it costs 5 to 20 µs of Python, as much for one
number as for a picture. Tables of small rows are therefore loaded at a few MB/s.

## How to fix it
Let the dataset fetch a whole batch by its list of indices (`__getitems__`), or keep the data in one
tensor and index it; pass `collate_fn=lambda batch: batch`. Return arrays or tensors from
`__getitem__`, not lists of numbers.

## When to ignore it
Where the device is busy while the next batch is assembled.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import InputWork, parents, within
from pinchpoint.diagnosis.evidence.host_spans import HostSpans
from pinchpoint.diagnosis.evidence.loading import (
    Loads,
    loads,
    made_ratio_if_sent,
    work_in_loader,
)
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=STACKS,
    parent="dataloader-starved",
    periodic=True,
    knobs=("num_workers",),
    confirm='pinchpoint bench ab -- "python train.py" "python train_getitems.py"',
)

MANY_ROWS = 1024  # at 5 to 20 µs a row, 5 to 20 ms a batch: as long as a step
TINY_ROW_BYTES = 2048  # copying it takes under 1 µs, so that the rest of a row's time is Python
# Asking for a row, wrapping it in a tensor and stacking it takes 5 µs and more; where a row takes
# less than half of that, the dataset gathers the whole batch at once already.
SHORTEST_PER_ROW_NS = 2_500
LONGEST_PER_ROW_NS = 50_000  # fetch and collate take 5 to 20 µs a row; opening a file takes more


def check(trace: Trace) -> Iterator[Found]:
    """Collating that can be seen, or tiny rows in great numbers."""
    found = loads(trace)
    if found is None or not found.starving:
        return
    if _tiny_rows(found) and made_ratio_if_sent(trace, found) is None:
        yield from _row_by_row(found)
        return
    large = found.sample_bytes is not None and found.sample_bytes > TINY_ROW_BYTES
    from pinchpoint.diagnosis.evidence.workers import found_in_workers, workers_do

    if found.in_workers and not large and (seen := workers_do(trace)) is not None:
        yield from found_in_workers(found, seen, InputWork.COLLATE, "collating", _FIX, _HINT)
        return
    collating = work_in_loader(trace, found.visible(), InputWork.COLLATE)
    if collating is None:
        return
    pieces = _operators_inside(trace, collating) / max(len(found.spans.rows), 1)
    if large and pieces < MANY_ROWS:
        return  # stacking them is one copy of memory, which worker processes can do as well
    yield Found(
        summary=(
            f"The training thread collates its batches, {collating.ns_per_step / 1e6:.1f} of"
            f" {duration(found.waits_ns_per_step)} that each step spends on its batch"
        ),
        evidence=(
            *collating.evidence,
            Evidence("operators of a batch", round(pieces, 1), "operators"),
            *found.spans.evidence[:1],
        ),
        cost_ns_per_step=collating.ns_per_step,
        changes=found.ready,
        location=collating.place,
        fix=_FIX_OF_LISTS if pieces >= MANY_ROWS else _FIX,
        hint=_HINT,
    )


def _operators_inside(trace: Trace, spans: HostSpans) -> int:
    """How many operators run in these spans."""
    host = trace.host_ops
    assert host is not None
    mine = np.zeros(len(host), np.bool_)
    mine[spans.rows] = True
    inside = (host["kind"] == HostKind.OPERATOR) & within(parents(host), mine)[:-1]
    return int(inside.sum())


def _tiny_rows(found: Loads) -> bool:
    if found.samples is None or found.sample_bytes is None or found.ns_per_sample is None:
        return False
    return found.samples >= MANY_ROWS and found.sample_bytes <= TINY_ROW_BYTES


def _row_by_row(found: Loads) -> Iterator[Found]:
    per_row = found.ns_per_sample
    if per_row is None or not SHORTEST_PER_ROW_NS <= per_row <= LONGEST_PER_ROW_NS:
        return
    who = "Workers put" if found.in_workers else "The training thread puts"
    yield Found(
        summary=(
            f"{who} batches of {found.samples} rows of {found.sample_bytes} bytes together,"
            f" {per_row / 1e3:.1f} µs a row; each step waits"
            f" {duration(found.waits_ns_per_step)} for them"
        ),
        evidence=(
            *found.spans.evidence,
            Evidence("rows in a batch", found.samples or 0, "rows"),
            Evidence("size of a row", found.sample_bytes or 0, "bytes"),
            Evidence("time of who prepares it", round(per_row), "ns per row"),
        ),
        cost_ns_per_step=found.waits_ns_per_step,
        changes=found.ready,
        location=found.spans.place,
        fix=_FIX,
        hint=_HINT,
        confidence="medium",
    )


_FIX = "Fetch a whole batch with one indexing call, and collate nothing"
_FIX_OF_LISTS = "Return arrays or tensors from the dataset, not lists of numbers"
_HINT = "def __getitems__(self, i): return self.x[i], self.y[i]  # with collate_fn=lambda b: b"
