"""A compiled program computes, sorts or permutes much of which a small part is read.

## What it looks for
The programs that XLA compiled, which a recording of JAX holds (`.xplane.pb`), backwards from slices
and gathers: of what an operation on the device gives, how many elements are read by all that read
it. Named are products and fusions of which half or less is read; permutations (sorts whose keys
are random bits that nobody reads) of which a quarter or less is taken, with the bits that are made
for them; and sorted arrays of which nothing but slices of a quarter or less are taken. What leaves
the program, goes into a loop or a branch, or is read in any other way counts as read; so does a
sort that the program wrote as a selection (`jax.lax.top_k`).

## Why it matters
The work is real, so that neither the device nor the host looks idle. A few thousand numbers of many
millions that are drawn without replacement (`jax.random.choice(..., replace=False)`) sort all of
them three times; scores of all positions are computed where the last one is read.

## How to fix it
Choose before computing: the rows that are read, of the operands. Draw with replacement
(`jax.random.randint`) where a few draws of many may well meet, or draw a few more and leave out the
equal ones; permute once for many steps and take the next part in each. In place of a sort,
`jax.lax.top_k` or `approx_max_k`.

## When to ignore it
Where draws have to be without replacement and of most of what is there.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.device.compiled import compiled_rows
from pinchpoint.diagnosis.evidence.compiled_work import (
    compiled_work,
    left_of,
    needing,
    place_told,
)
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NotChecked, Rule
from pinchpoint.trace import Table, Trace
from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops",),
    record=Record("the .xplane.pb that jax.profiler writes, which holds the compiled programs"),
    confirm=ANY_PROGRAM,
)

MOST_TOLD = 2  # places: the others wait for the next look
_FIX = {
    "results": "Choose what is read before it is computed: rows of the operands, not of the result",
    "permutation": "Draw what is taken without permuting all: with replacement, or a few more of"
    " which equal ones are left out; or permute once for many steps",
    "sort": "Select in place of sorting",
}
_HINT = {
    "results": "logits = hidden[:, -1] @ head  # not (hidden @ head)[:, -1]",
    "permutation": "i = jax.random.randint(key, (k,), 0, n)  # not choice(..., replace=False)",
    "sort": "values, indices = jax.lax.top_k(x, k)",
}


def check(trace: Trace) -> Iterator[Found]:
    """The places that take a small part of what most time is spent on."""
    ops, compiled = trace.device_ops, trace.compiled_ops
    if ops is None or compiled is None or not len(compiled):
        return
    if not (compiled.known("flops") | compiled.known("bytes")).any():
        raise NotChecked("the compiled programs are not in this recording")
    row = compiled_rows(trace)
    partly = (row >= 0) & compiled.known("read_ratio")[row]
    at = np.where(partly, compiled.filled("read_at", len(trace.names))[row], -1)
    took = np.bincount(at[at >= 0], ops["duration_ns"][at >= 0])
    told = min(MOST_TOLD, np.count_nonzero(took))
    for place in np.argsort(-took, kind="stable")[:told].tolist():
        found = _found(trace, compiled, row, at == place)
        if found is not None:
            yield found


def _found(trace: Trace, compiled: Table, row: Rows, mine: Mask) -> Found | None:
    work = compiled_work(trace, mine)
    if work is None:
        return None
    counted, took = row[work.rows], work.took_ns
    ratio = compiled["read_ratio"][counted]
    longest = int(counted[took.argmax()])
    kind = trace.text(compiled, "read_of", longest) or "results"
    location = place_told(trace.text(compiled, "source", longest))
    reader = place_told(trace.text(compiled, "read_at", longest))
    beside = f" and read at {reader.short}" if reader and reader != location else ""
    where = f" at {location.short}" if location else ""
    return Found(
        summary=(
            f"{_WHAT[kind].format(share=_share(float(ratio[took.argmax()])))}{where}{beside}:"
            f" {duration(work.ns_per_step)} of each recorded step in {work.count:.0f} operations"
        ),
        evidence=(
            Evidence("operations of which a part is read", work.ns_per_step, "ns per step"),
            Evidence("operations", round(work.count, 2), "per step"),
            Evidence("of this work that is needed", round(left_of(work, ratio), 6), "ratio"),
        ),
        cost_ns_per_step=work.ns_per_step,
        location=location,
        fix=_FIX[kind],
        hint=_HINT[kind],
        confidence="high",
        **needing(trace, work, ratio, ratio),
    )


_WHAT = {
    "results": "Of what is computed {share} is read",
    "permutation": "Of a permutation made of random numbers {share} is taken",
    "sort": "A small part of what is sorted is read, and selecting it takes {share} of the time",
}


def _share(ratio: float) -> str:
    return f"{100 * ratio:.2g} %"
