"""A program on the CPU copies large tensors within its steps.

## What it looks for
Copies, casts and changes of layout (`contiguous`, `clone`, `to`, `copy_`) of tensors too large for
the work of calling an operator to matter, outside the optimizer and the loader, in a program
without a device. Views copy nothing and are not meant; copies of programs on a device are judged by
what the device waits for. Where shapes show small tensors, it is their number that costs time
(`cpu-operator-loop`).

## Why it matters
A copy reads and writes every byte and computes nothing. Done once before the loop, or avoided by
another order of dimensions, it costs nothing in the step.

## How to fix it
Bring the tensor into the layout and type in which it is used once, where it is made; slice before
copying; use `out=` or in-place operators instead of clones.

## When to ignore it
Where each step needs new values in another layout.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import subtree_sums
from pinchpoint.analysis.host.on_cpu import GRAIN_ELEMENTS, cpu_operators, first_elements
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.finding import Found, Small
from pinchpoint.diagnosis.record import SHAPES
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import fair_share, inside, judged, named, too_small
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named

RULE = Rule(needs=("host_ops",), record=SHAPES)

# Called by the program or the backward pass: what other operators copy inside is their own work.
_COPIES = (
    "aten::contiguous", "aten::clone", "aten::to", "aten::_to_copy", "aten::copy_", "aten::reshape",
)  # fmt: skip


def check(trace: Trace) -> Iterator[Found | Small]:
    """Copies of large tensors."""
    mine = judged(trace)
    if mine is None:
        return
    size = first_elements(trace)
    if (size < 0).all():
        raise NotChecked("the shapes of the inputs are not recorded")
    elsewhere = inside(trace, "Optimizer.", "enumerate(DataLoader)")
    calls = cpu_operators(trace)
    copied = subtree_sums(calls.parent, named(trace, "aten::copy_").astype(np.int64)) > 0
    wanted = mine & calls.called & copied & named(trace, *_COPIES) & ~elsewhere
    wanted &= size >= GRAIN_ELEMENTS
    spans = host_spans(trace, wanted, "copies of large tensors")
    fair = 1.0 if spans is None else fair_share(trace, spans)
    if spans is None:
        return
    if small := too_small(trace, spans, fair):
        yield small
        return
    yield Found(
        summary=(
            f"{spans.count:.0f} copies of large tensors a step take"
            f" {duration(spans.ns_per_step)}{spans.where}"
        ),
        evidence=spans.evidence,
        cost_ns_per_step=spans.ns_per_step,
        changes=(ScaleHostSpans(spans.rows, 1.0 - fair),),
        location=spans.place,
        fix=_fix(trace, spans.rows),
        confirm=ANY_PROGRAM,
    )


_OF_LAYOUT = "Make the tensor in the layout and type of its use, or copy once before the loop"
_AS_IT_IS = (
    "Copy the part that changes or is read alone (slice it first), write into a tensor that is kept"
    " (kept.copy_(x)), or do without: a length to go back to undoes what was written to a cache"
)
_CLONE = "aten::clone"


def _fix(trace: Trace, rows: Rows) -> str:
    """Clones that the program asks for are copies as they are: no other layout spares them."""
    host = trace.host_ops
    assert host is not None
    took = host["duration_ns"][rows].astype(np.int64)
    cloned = rows_named(trace, host, lambda name: name == _CLONE)[rows]
    return _AS_IT_IS if 2 * int(took[cloned].sum()) > int(took.sum()) else _OF_LAYOUT
