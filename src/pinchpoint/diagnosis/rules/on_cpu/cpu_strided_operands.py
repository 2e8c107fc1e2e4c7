"""On a CPU, operands of an elementwise operator lie in memory in different orders.

## What it looks for
In a program without a device: elementwise operators on tensors that no core's own cache holds,
whose recorded strides say that neighbours in one operand are far apart in another (a transposed or
permuted view beside a dense tensor, a slice with steps), and that take longer than one core of a
slow server would for the same bytes in one order. Transposing copies are `cpu-copies`; products are
not meant, as their libraries take either order. Not checked without strides.

## Why it matters
Memory comes in lines of 64 bytes. Where an operator uses four of them and fetches the line again
later, and cannot work in vectors, it takes several times as long as on dense operands: a product of
two matrices of 2,048 rows, element by element, five times where one of them was transposed, a sum
with a permuted tensor seven times.

## How to fix it
Make the tensor in the order in which it is used; or make it dense once (`.contiguous()`) if it is
used more than once. Keep all operands of an operation in one order.

## When to ignore it
Where each operand is needed in its own order elsewhere, and this is their only meeting.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.costs import cost_of
from pinchpoint.analysis.costs.pointwise import ELEMENTWISE
from pinchpoint.analysis.host.on_cpu import cpu_operators
from pinchpoint.analysis.limits.on_cpu import LEAST_BYTES_PER_S
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.work.pointwise_chains import (
    LaunchedCall,
    distinct_calls,
    in_different_orders,
)
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import SHAPES_AND_STRIDES
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NO_HINT, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import judged, too_small
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=SHAPES_AND_STRIDES, advice=NO_HINT)

LARGE_BYTES = 4 << 20  # moved by one call; cores of servers have a cache of 1 to 2 MiB of their own
QUICK_RATIO = 3.0  # one core of a current server streams 12 GB/s or more, a slow one 4
_COPIES = ("copy", "clone", "_to_copy")


def check(trace: Trace) -> Iterator[Found | Small]:
    """Slow elementwise operators on operands of different orders."""
    mine = judged(trace)
    if mine is None:
        return
    host = trace.host_ops
    assert host is not None
    if not (host.filled("strides", -1) >= 0).any():
        raise NotChecked("the strides of the inputs are not recorded")
    own = cpu_operators(trace)
    rows = np.flatnonzero(mine & own.operator & (own.own_ns > 0))
    calls, which = distinct_calls(trace, rows)
    dense_ns = np.array([_dense_ns(of) for of in calls], np.float64)[which]
    slow = own.own_ns[rows] > dense_ns  # false where nothing is known
    wanted = np.zeros(len(host), np.bool_)
    wanted[rows[slow]] = True
    spans = host_spans(trace, wanted, "elementwise operators on operands of different orders")
    if spans is None:
        return
    if small := too_small(trace, spans):
        yield small
        return
    took_ns, needs_ns = int(own.own_ns[rows[slow]].sum()), float(dense_ns[slow].sum())
    yield Found(
        summary=(
            f"Elementwise operators on operands that lie in memory in different orders take"
            f" {duration(spans.ns_per_step)} of a step{spans.where}"
        ),
        evidence=(
            *spans.evidence,
            Evidence("of a slow core's time for dense operands", took_ns / needs_ns, "ratio"),
        ),
        cost_ns_per_step=spans.ns_per_step,
        changes=(ScaleHostSpans(spans.rows, needs_ns / took_ns),),
        at_best=(ScaleHostSpans(spans.rows, needs_ns / took_ns / QUICK_RATIO),),
        location=spans.place,
        fix="Keep the operands of an operation in one order: make the tensor as it is used, or"
        " dense once",
        confirm=ANY_PROGRAM,
        confidence="medium",
    )


def _dense_ns(of: LaunchedCall) -> float:
    """What one core of a slow server takes for a large call on operands of one order; NaN where the
    operands have one, or it is not known."""
    bare = of.call.name.removeprefix("aten::").rstrip("_")
    if bare not in ELEMENTWISE or bare in _COPIES or not in_different_orders(of):
        return float("nan")
    cost = cost_of(of.call)
    moved = 0 if cost is None or cost.bytes is None else cost.bytes
    return 1e9 * moved / LEAST_BYTES_PER_S if moved >= LARGE_BYTES else float("nan")
