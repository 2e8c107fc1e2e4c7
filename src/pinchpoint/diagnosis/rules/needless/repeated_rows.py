"""The same rows are computed again: they were repeated before the work instead of after it.

## What it looks for
`pinchpoint run` looks at what the operations of one step give: how many of their rows are
different, or of their samples where these have three dimensions and more. Where each is there
several times because the step expanded, repeated, joined or laid them out again before, or because
it looked them up from a table that it computed itself, all work of the forward pass on such rows is
told, with its backward pass. Left alone are rows that come the same from outside (a batch with
equal samples, a benchmark's ones), that fill a batch up (one row nearly all the time), that are
drawn from stored data, and all that something random or another input makes different again.

## Why it matters
An encoder that sees each picture once for each of its eight captions takes eight times as long. A
layer on the edges of a graph, which takes rows of nodes alone, computes each node once for each of
its edges.

## How to fix it
Compute first, repeat after it: `encoder(x).repeat_interleave(8, 0)` for
`encoder(x.repeat_interleave(8, 0))`, `lin(x)[src]` for `lin(x[src])`. Where only one of several
inputs is repeated, a layer on both is a sum of two: `a(x)[:, None] + b(y)[None]` for a layer on
`cat` of both. What is left is so much of the work as there are different rows.

## When to ignore it
Where the rows are to become different soon (dropout that is off in this step).
"""

from collections.abc import Iterator

from pinchpoint.diagnosis.evidence.vain_work import counted, vain, watched
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import WATCHED_RUN
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=WATCHED_RUN, advice=NO_HINT)


def check(trace: Trace) -> Iterator[Found]:
    """Work of each cause on rows that are the same."""
    values = watched(trace)
    for work in () if values is None else values.work or ():
        rows = vain(trace, work, beside_modules=False) if work.kind == "rows" else None
        if rows is None or not work.of or not 0 < work.left_ratio < 1:
            continue
        distinct = round(work.of * work.left_ratio)
        where = f" in {rows.place}" if rows.place else ""
        took = rows.device_ns or rows.host_ns
        of_what = " of the device's time" if rows.device_ns else ""
        yield Found(
            summary=(
                f"Of {work.of:,} rows that were repeated{where} {distinct:,} are different:"
                f" {counted(work)} a step compute on all of them, mostly {rows.longest},"
                f" {duration(took)}{of_what}"
            ),
            evidence=(
                Evidence("operations on such rows", work.times, "per step"),
                Evidence("rows of the heaviest", work.of, "count"),
                Evidence("of these different", round(work.left_ratio, 4), "ratio"),
                *rows.evidence,
            ),
            cost_ns_per_step=round((1 - work.left_ratio) * max(rows.device_ns, rows.host_ns)),
            changes=rows.changes(trace),
            location=rows.place,
            fix="Compute on the rows that are different, and repeat what comes of them",
            hint="encoder(x).repeat_interleave(n, 0)  # not encoder(x.repeat_interleave(n, 0))",
            confidence="high",
        )
