"""On a CPU, a large table gets a dense gradient although a step reads few of its rows.

## What it looks for
The backward pass of an `Embedding` or `EmbeddingBag` into a table with ten times as many rows as
the step has indices, and the operators that pass over a tensor of that very shape: its zeros,
clipping, the optimizer's update. Where a matrix product uses the table as well (weights tied to
the output layer), the gradient is dense by nature, and this is no finding. Without shapes times
tell: reading a row takes at least what writing zeros for it does, so where the zeros take many
times as long as all reading, few rows are read, and what the optimizer does to something as large
counts.
Where times tell nothing and the optimizer and the zeros take a quarter of the step, that is said as
undecided.
Programs on a device are judged by `dense-embedding-gradient`.

## Why it matters
The gradient of the whole table is written as zeros, and the optimizer reads and writes every row
of the table, the gradient and its moments, for the few rows that changed.

## How to fix it
`sparse=True` for the table, with an optimizer that takes sparse gradients (Adagrad, SGD,
SparseAdam); or a smaller, hashed table.

## When to ignore it
Where weight decay or momentum has to act on rows that were not read.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from pinchpoint.analysis.costs import OperatorCall
from pinchpoint.analysis.host.ancestry import within
from pinchpoint.analysis.host.on_cpu import cpu_operators
from pinchpoint.analysis.replay import Change, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.work.operator_work import NOT_KNOWN, call_of
from pinchpoint.diagnosis.evidence.host_spans import HostSpans, host_spans
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import SHAPES_OF_INPUTS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import inside, judged, named, too_small
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Floats, Mask, Rows, distinct_rows
from pinchpoint.trace.durations import duration

if TYPE_CHECKING:
    from pinchpoint.diagnosis.evidence.embedding_tables import Table


RULE = Rule(needs=("host_ops",), record=SHAPES_OF_INPUTS, advice=NO_HINT)

# Host time of a sparse update beyond its rows, with an optimizer that is a few dozen operators: it
# sorts the indices and adds up equal rows.
SPARSE_UPDATE_NS = 1_000_000
FITS_RATIO = 0.25  # of the step: so much in zeros and the optimizer leaves the answer open
OPTIMIZER = "Optimizer.step#"
_ZEROS = ("aten::fill_", "aten::zero_")
_FIX = "Give the table sparse gradients and an optimizer that updates the rows read"
_OPTIMIZERS = "  # EmbeddingBag alike; optimizers: Adagrad, SGD, SparseAdam"


def check(trace: Trace) -> Iterator[Found | Small]:
    """Passes over whole tables for few rows."""
    mine = judged(trace)
    if mine is None or trace.host_ops is None:
        return
    from pinchpoint.diagnosis.evidence.embedding_tables import (
        ROWS_ARGUMENT,
        share_of,
        sparsely_read,
    )

    backward = mine & named(trace, *ROWS_ARGUMENT)
    if not backward.any():
        return
    if not trace.host_ops.known("shapes")[backward].any():
        yield from _by_times(trace, mine) or _not_decided(trace, mine)
        return
    rows = np.flatnonzero(mine & cpu_operators(trace).operator)
    calls, which = _calls(trace, rows)
    for table in sparsely_read([call for call in calls if call is not None]):
        share = [None if call is None else share_of(call, table.shape) for call in calls]
        yield from _found(trace, table, rows, np.array([one or 0.0 for one in share])[which])


def _calls(trace: Trace, rows: Rows) -> tuple[list[OperatorCall | None], Rows]:
    """The distinct calls among rows of ``host_ops``, and which of them each row is."""
    host = trace.host_ops
    assert host is not None
    columns = (host.filled(c, NOT_KNOWN)[rows] for c in ("shapes", "dtypes", "values"))
    distinct, which = distinct_rows(host["name"][rows].astype(np.int64), *columns)
    return [call_of(trace.names, *one) for one in distinct.tolist()], which


def _found(trace: Trace, table: "Table", rows: Rows, share: Floats) -> Iterator[Found | Small]:
    host = trace.host_ops
    assert host is not None
    passes = np.zeros(len(host), np.float64)
    passes[rows] = share
    spans = host_spans(trace, passes > 0, "passes over the whole table and its gradient")
    if spans is None:
        return
    if small := too_small(trace, spans):
        yield small
        return
    took = host["duration_ns"][spans.rows]
    of_table = per_step(trace, float((took * passes[spans.rows]).sum()))
    least = of_table * (1 - table.left_ratio) - SPARSE_UPDATE_NS
    most = of_table - SPARSE_UPDATE_NS  # equal rows are one: how many there are is not recorded
    count, width = table.shape
    yield Found(
        summary=(
            f"A step reads at most {table.indices:,} of the {count:,} rows of a table and updates"
            f" all of them: {duration(round(of_table))} of passes over it in each step"
        ),
        evidence=(
            *spans.evidence,
            Evidence("rows of the table", count, "count"),
            Evidence("rows read, at most", table.indices, "per step"),
            Evidence("gradient of the table", table.bytes, "bytes"),
        ),
        cost_ns_per_step=round(of_table),
        changes=_without(spans, least),
        at_best=_without(spans, most),
        location=spans.place,
        fix=_FIX,
        hint=f"nn.Embedding({count}, {width}, sparse=True)" + _OPTIMIZERS,
    )


def _without(spans: HostSpans, gone_ns: float) -> tuple[Change, ...]:
    left = 1 - max(gone_ns, 0) / max(spans.ns_per_step, 1)
    return (ScaleHostSpans(spans.rows, max(left, 0.0)),)


# Pages that are new to a process: writing these took up to eight times what a pass over old ones
# did (zeros and sqrt against addcmul_ of one table, two cores).
NEW_PAGES = 8
_READING = ("aten::embedding", "aten::embedding_bag")
_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm")


def _by_times(trace: Trace, mine: Mask) -> list[Found | Small]:
    """What times tell where shapes are missing; nothing where they do not."""
    from pinchpoint.diagnosis.evidence.embedding_tables import (
        FEW_ROWS_RATIO,
        ROWS_ARGUMENT,
        SPARSE_PASSES,
    )

    own_ns = cpu_operators(trace).own_ns
    backward = named(trace, *ROWS_ARGUMENT)
    zeros = mine & named(trace, *_ZEROS) & _below(trace, backward)
    reading = host_spans(trace, named(trace, *_READING), "reading rows of tables")
    if reading is None or not own_ns[zeros].any():
        return []
    zeros_ns = per_step(trace, int(own_ns[zeros].sum()))
    read_ratio = NEW_PAGES * reading.ns_per_step / zeros_ns
    pass_ns = np.median(own_ns[zeros]) / NEW_PAGES
    passes = mine & inside(trace, OPTIMIZER) & (own_ns >= pass_ns)
    products = mine & named(trace, *_PRODUCTS)
    multiplied = int((own_ns[products] >= pass_ns).sum()) >= (backward & mine).sum()
    others = np.bincount(trace.host_ops["name"][passes]) if trace.host_ops is not None else passes
    if read_ratio > FEW_ROWS_RATIO or multiplied or others.max(initial=0) > 2 * zeros.sum():
        return []
    spans = host_spans(trace, zeros | passes, "zeros for tables and passes as long")
    if spans is None:
        return []
    if small := too_small(trace, spans):
        return [small]
    left_ns = SPARSE_PASSES * read_ratio * spans.ns_per_step
    gone_ns = spans.ns_per_step - SPARSE_UPDATE_NS
    return [
        Found(
            summary=(
                f"A step reads at most {100 * read_ratio:.2g} % of the rows of its tables and"
                f" updates all of them: {duration(spans.ns_per_step)} of passes over them in each"
            ),
            evidence=(
                *spans.evidence,
                Evidence("zeros for their gradients", round(zeros_ns), "ns per step"),
                *reading.evidence[:1],
            ),
            cost_ns_per_step=spans.ns_per_step,
            changes=_without(spans, gone_ns - left_ns),
            at_best=_without(spans, gone_ns - left_ns / NEW_PAGES),
            location=reading.place,
            fix=_FIX,
            hint="nn.Embedding(rows, width, sparse=True)" + _OPTIMIZERS,
            confidence="medium",
        )
    ]


def _not_decided(trace: Trace, mine: Mask) -> NoReturn:
    """Without shapes nobody knows how large the table is: whether it may be the reason."""
    host, step_ns = trace.host_ops, steps(trace).typical_ns
    assert host is not None
    assert step_ns is not None
    operators = cpu_operators(trace)
    from pinchpoint.diagnosis.evidence.embedding_tables import ROWS_ARGUMENT

    passes = named(trace, *_ZEROS) & _below(trace, named(trace, *ROWS_ARGUMENT))
    passes |= inside(trace, OPTIMIZER)
    took = per_step(trace, int(operators.own_ns[mine & passes & operators.operator].sum()))
    if took < FITS_RATIO * step_ns:
        raise NotChecked("the recording has no shapes of inputs")
    raise NotChecked(
        f"an embedding has a dense gradient, zeros for it and the optimizer take"
        f" {100 * took / step_ns:.0f} % of the step, and without shapes nobody knows how many rows"
        " the table has",
        fits=True,
    )


def _below(trace: Trace, above: Mask) -> Mask:
    found: Mask = within(cpu_operators(trace).parent, above)[:-1]
    return found
