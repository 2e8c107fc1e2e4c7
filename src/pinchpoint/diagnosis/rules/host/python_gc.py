"""Garbage collection stops the thread that launches.

## What it looks for
Calls of `gc.collect()` inside the steps, and the collector's own ranges where a tracer records
them. A collection that Python starts by itself leaves no event in a PyTorch trace; `pinchpoint run`
times every collection of the whole run. Without any of these nothing tells collecting from other
Python.

## Why it matters
A full collection visits every live container object. With millions of them (datasets, caches,
configuration trees) it takes a tenth of a second or more, during which nothing is launched.

## How to fix it
Take the call out of the loop. Freeze what lives long once it is built (`gc.collect();
gc.freeze()`), and collect at moments that you choose, such as every thousand steps.

## When to ignore it
Collections between epochs.
"""

from collections.abc import Iterator

from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.diagnosis.evidence.host_spans import host_spans, how_often, named
from pinchpoint.diagnosis.evidence.rare import rare_found
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=STACKS,
    periodic=True,
    knobs=("gc",),
    confirm="pinchpoint try --knob gc -- python train.py",
)

_COLLECTOR = ("<built-in function collect>", "Python GC", "gc.collect")


def check(trace: Trace) -> Iterator[Found]:
    """Collections inside the steps; rare ones by the samples of the whole run."""
    rare = tuple(rare_found(trace, (GapKind.GC,), fix=_FIX, hint=_HINT))
    if rare:
        yield from rare
        return
    collects = named(trace, lambda name: name.startswith(_COLLECTOR))
    spans = host_spans(trace, collects, "garbage collection")
    if spans is None:
        return
    yield Found(
        summary=(
            f"Garbage is collected {how_often(trace, spans)}{spans.where},"
            f" for {duration(spans.ns_per_step)} of the mean step"
        ),
        evidence=spans.evidence,
        cost_ns_per_step=spans.ns_per_step,
        changes=(ScaleHostSpans(spans.rows, 0.0),),
        location=spans.place,
        fix=_FIX,
        hint=_HINT,
    )


_FIX = "Freeze long-lived objects with gc.freeze() and collect at steps that you choose"
_HINT = "gc.collect(); gc.freeze(); gc.disable()  # before the loop"
