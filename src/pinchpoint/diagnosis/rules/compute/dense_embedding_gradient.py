"""A large table gets a dense gradient although a step reads few of its rows.

## What it looks for
`embedding_dense_backward`, or that of an `EmbeddingBag`, into a table with ten times as many rows
as the step has indices, and the passes over a tensor of that very shape: its zeros, clipping, the
optimizer's update. Where a matrix product uses the table as well (weights tied to the output
layer), the gradient is dense by nature, and this is no finding. Not checked where neither shapes
nor the size of the table were recorded. Programs without a device are judged by
`cpu-dense-embedding-gradient`.

## Why it matters
The gradient of the whole table is written as zeros, and the optimizer reads and writes every row
of the table, the gradient and its moments, for the few rows that changed: all of it at the
memory's bandwidth, and a gradient as large as the table in memory.

## How to fix it
`nn.Embedding(..., sparse=True)` with `torch.optim.SparseAdam` or SGD for the table alone; a fused
sparse optimizer (FBGEMM) for several tables; or a smaller, hashed table.

## When to ignore it
Where weight decay or momentum has to act on rows that were not read.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pinchpoint.analysis.costs import OperatorCall
from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.device.collectives import collectives
from pinchpoint.analysis.replay import AddHostTime, Change, ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.host_spans import named
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_OF_INPUTS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Floats, Rows
from pinchpoint.trace.durations import duration

if TYPE_CHECKING:
    from pinchpoint.diagnosis.evidence.embedding_tables import Table


RULE = Rule(needs=("device_ops", "host_ops"), record=SHAPES_OF_INPUTS, advice=NO_HINT)

# Host time of SparseAdam beyond a fused update: it adds up equal rows and waits for their number,
# and is a hundred eager operators; one millisecond beside an H200.
SPARSE_UPDATE_NS = 1_000_000
MOSTLY_RATIO = 0.5  # of a message: a bucket that other gradients fill is not this one's


_ZEROS = ("aten::fill_", "aten::zero_")
_PASSES = (Category.ELEMENTWISE, Category.OPTIMIZER, Category.REDUCTION, Category.DATA_MOVEMENT)


def check(trace: Trace) -> Iterator[Found]:
    """Passes over whole tables for few rows."""
    host = trace.host_ops
    from pinchpoint.diagnosis.evidence.embedding_tables import ROWS_ARGUMENT, sparsely_read

    if host is None or not named(trace, lambda name: name in ROWS_ARGUMENT).any():
        return
    if not host.known("shapes").any():
        raise NotChecked("the recording has no shapes of inputs")
    for table in sparsely_read(_calls(trace)):
        yield from _found(trace, table)


def _found(trace: Trace, table: "Table") -> Iterator[Found]:
    from pinchpoint.diagnosis.evidence.embedding_tables import share_of

    share = launched_calls(trace).numbers(lambda of: share_of(of.call, table.shape))
    passes = np.isin(category_of_device_ops(trace), _PASSES)
    passes |= launched_calls(trace).where(lambda of: of.call.name in _ZEROS)
    passes &= np.nan_to_num(share) > 0
    work = device_work(trace, passes, "passes over the whole table and its gradient")
    if work is None:
        return
    rows, sent = table.shape[0], _sent(trace, table)
    factor: Floats = 1.0 - share[work.rows] * (1.0 - table.left_ratio)

    yield Found(
        summary=(
            f"A step reads at most {table.indices:,} of the {rows:,} rows of a table and updates"
            f" all of them: {duration(work.ns_per_step)} of passes over it in each step"
        ),
        evidence=(
            *work.evidence,
            Evidence("rows of the table", rows, "count"),
            Evidence("rows read, at most", table.indices, "per step"),
            Evidence("gradient of the table", table.bytes, "bytes"),
            *sent.evidence,
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(
            ScaleDeviceOps(work.rows, factor, bytes_left=table.left_ratio),
            AddHostTime(_updates(trace, work.rows), SPARSE_UPDATE_NS),
            *sent.changes,
        ),
        saving_bytes=table.bytes,
        location=work.place,
        fix="Give the table sparse gradients and an optimizer that updates the rows read",
        hint="nn.Embedding(rows, width, sparse=True)  # and torch.optim.SparseAdam for it",
    )


@dataclass(frozen=True, eq=False)
class _Sent:
    """Between ranks, the gradient of the whole table; of rows alone only these would travel."""

    changes: tuple[Change, ...] = ()
    evidence: tuple[Evidence, ...] = ()


def _sent(trace: Trace, table: "Table") -> _Sent:
    """All-reduces of messages that are mostly this gradient."""
    found = collectives(trace)
    if found is None:
        return _Sent()
    mine = (found.kind == "allreduce") & (found.bytes >= table.bytes)
    mine &= found.bytes * MOSTLY_RATIO <= table.bytes
    if not mine.any():
        return _Sent()
    # All ranks' rows are gathered where sums were reduced, which moves each number twice.
    ranks = trace.world_size or 2
    left = min(table.left_ratio * ranks / 2, 1.0)
    factor: Floats = 1.0 - table.bytes / found.bytes[mine] * (1.0 - left)
    took = round(per_step(trace, int(found.duration_ns[mine].sum())))
    return _Sent(
        (ScaleDeviceOps(found.rows[mine], factor, bytes_left=left),),
        (Evidence("all-reduces of all of it, waiting included", took, "ns per step"),),
    )


def _updates(trace: Trace, rows: Rows) -> Rows:
    """The first call of each optimizer's pass over the table, or of any where none is known."""
    ops, calls = trace.device_ops, launched_calls(trace)
    assert ops is not None
    stepping = rows[category_of_device_ops(trace)[rows] == Category.OPTIMIZER]
    first = np.unique(calls.operator[stepping], return_index=True)[1]
    found = ops.filled("api_call", -1)[stepping[first]]
    known: Rows = found[found >= 0].astype(np.intp)
    return known


def _calls(trace: Trace) -> list[OperatorCall]:
    calls, inside = launched_calls(trace), device_ops_in_steps(trace)
    used = set(calls.which[inside].tolist())
    return [c.call for i, c in enumerate(calls.calls) if i in used]
