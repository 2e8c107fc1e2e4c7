"""Matrix products are multiplied in an order that takes many times the operations of another one.

## What it looks for
`pinchpoint run` watches the operations of six steps after its recording, as torch's dispatcher
runs them, and which operation takes what another one gave. Products that take products are
multiplied out in the order that takes fewest operations: `(A B) C` or `A (B C)`, sums of products
with the same outer matrices, transposed ones. Named are those of four steps in turn that take less
than 0.7 of their FLOPs that way. A product that anything else reads (a softmax, a mask, a norm, the
program) is computed as it is.

Which products belong together is known from the values alone. Recordings on a device without them
tell of two cases by shapes and strides. In the backward pass, the gradient of a product of two
narrow matrices that a layer's product computes and nothing but that product's node takes. And a
matrix with more rows than columns times its transpose (or that of one that lies in memory like it),
whose result is multiplied with such a matrix again within a few calls, where nothing but products
of its kind, multiples by a number and sums read anything of its size in between: that is surmise,
of less confidence.

## Why it matters
The order decides the size of what is in between. A matrix of 4096 × 1024 times its own transpose
has 4096 × 4096 numbers and makes all that follows sixteen times as large as on the short side; two
large matrices are multiplied to be applied to one vector; scores of all pairs are computed where
nothing but sums of their products with values is asked.

## How to fix it
Put the parentheses where the inner dimension is the small one: `A @ (B @ v)`; of a polynomial in
`X Xᵀ` applied to `X`, transpose `X` first where it has more rows than columns, so that the Gram
matrix is on its short side; `torch.linalg.multi_dot` chooses for a chain. A gradient that is asked
of the product of two weights is cheaper of each: `x @ (w + b @ a).mT` (an adapter of low rank as a
parametrisation of the weight) computes the gradient of all of `w + b @ a`, in as many operations as
the layer itself, to multiply it by `a` and `b`; of `x @ w.mT + (x @ a.mT) @ b.mT` nobody asks it.

## When to ignore it
Where the last digits have to stay: another order rounds elsewhere. Where the product is kept for
other steps than those that were watched.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.replay import Change, ScaleDeviceOps, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.diagnosis.evidence.attainable import PRODUCT_START_NS, attainable
from pinchpoint.diagnosis.evidence.vain_work import Vain, vain, watched
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import WATCHED_RUN
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.diagnosis.rules.needless._by_shapes import by_shapes
from pinchpoint.diagnosis.rules.needless._low_rank import low_rank_gradients
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named
from pinchpoint.trace.run_values import ProductOrder

RULE = Rule(needs=("host_ops",), record=WATCHED_RUN, advice=NO_HINT)

_PRODUCT = frozenset(f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv"))
_ELEMENT_BYTES = 2  # the least that a number of a product takes: 16 bits


_OF_VALUES = (
    "Multiply in the order with the small matrices in between",
    "y = a @ (b @ v)  # not (a @ b) @ v; of x @ x.mT with more rows: x.mT @ x",
)
_OF_GRADIENTS = (
    "Apply the small matrices one after the other, and do not multiply them with each other first",
    "y = x @ w.mT + (x @ a.mT) @ b.mT  # not x @ (w + b @ a).mT",
)


def check(trace: Trace) -> Iterator[Found]:
    """Products of each function that another order makes cheaper."""
    not_seen, values, told = None, None, False
    try:
        values = watched(trace)
    except NotChecked as why:  # shapes alone may tell
        not_seen = why
    for work in () if values is None else values.work or ():
        if work.kind == "order" and work.order is not None:
            rows = vain(trace, work, beside_modules=False)
            if rows is not None:
                told = True
                yield _found(trace, work.order, rows)
    found = None if told else low_rank_gradients(trace)
    if found is not None:
        yield _found(trace, *found)
    if values is None:
        others = list(by_shapes(trace))
        yield from others
        if not_seen is not None and found is None and not others:
            raise not_seen


def _found(trace: Trace, order: ProductOrder, rows: Vain) -> Found:
    where = f" in {rows.place}" if rows.place else ""
    times = round(per_step(trace, _products(trace, rows)))
    took = rows.device_ns or rows.host_ns
    of = "device" if rows.device_ns else "host"
    of_it = " for gradients of the product" if rows.work.backward else ""
    return Found(
        summary=(
            f"{times} matrix products a step{of_it}{where} take {order.flops / 1e9:.3g} GFLOP;"
            f" in another order the same takes {order.flops_left / 1e9:.3g}: {duration(took)} of"
            f" the {of}'s time as recorded"
        ),
        evidence=(
            Evidence("products", times, "per step"),
            Evidence("their operations", order.flops, "flop per step"),
            Evidence("in the cheapest order", order.flops_left, "flop per step"),
            Evidence("products in that order", order.products_left, "per step"),
            *rows.evidence,
        ),
        cost_ns_per_step=took,
        changes=_changes(trace, order, rows),
        location=rows.place,
        fix=_OF_GRADIENTS[0] if rows.work.backward else _OF_VALUES[0],
        hint=_OF_GRADIENTS[1] if rows.work.backward else _OF_VALUES[1],
        confidence="high",
    )


def _products(trace: Trace, rows: Vain) -> int:
    host = trace.host_ops
    assert host is not None
    return int(rows_named(trace, host, _PRODUCT.__contains__)[rows.operators].sum())


def _changes(trace: Trace, order: ProductOrder, rows: Vain) -> tuple[Change, ...]:
    """At the rate of now, or what starting them and moving their numbers takes."""
    left = order.flops_left / order.flops
    if not len(rows.device_rows):
        return (ScaleHostSpans(rows.spans, left),)
    well = attainable(trace)
    moving = well.stream_ns(order.elements_left * _ELEMENT_BYTES) if well else None
    needed = max(PRODUCT_START_NS * order.products_left, moving or 0.0)
    factor = float(np.clip(needed / max(rows.device_ns, 1), left, 1.0))
    return (ScaleDeviceOps(rows.device_rows, factor, flops_left=left, bytes_left=left),)
