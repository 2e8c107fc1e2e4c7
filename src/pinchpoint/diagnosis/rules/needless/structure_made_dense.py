"""A diagonal or class numbers are made a matrix, and all its zeros are computed with.

## What it looks for
`diag_embed`, `diag` or `one_hot`, and behind it in the same call of a function an operator that
factors a matrix of that shape, solves with it or multiplies by it, while everything in between that
touches a matrix of that shape only looks at it: views, casts, comparisons. Where anything else may
have made such a matrix meanwhile (a sum, a product, random numbers), nothing is said; nor where two
matrices of the shape are multiplied. Shapes and stacks have to be recorded. What the backward pass
does for these operators counts with them.

## Why it matters
Of N × N numbers N are not zero. A factorisation takes N³ steps for N square roots, a product by a
diagonal as long as one by any matrix; a product with one-hot rows reads a whole table to copy one
of its rows.

## How to fix it
Compute with the vector. A normal distribution whose covariance is diagonal is
`Independent(Normal(mean, std), 1)`, with the same log-probabilities and entropy; solving with a
diagonal is a division, multiplying by one `d[..., None] * x`. In place of `one_hot(i) @ table` take
`F.embedding(i, table)`.

## When to ignore it
Where N is a handful, or the class of distribution has to stay for what is not diagonal elsewhere.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import parents, within_rows
from pinchpoint.analysis.host.attribution import backward_nodes, forward_rows
from pinchpoint.analysis.replay import ReduceLaunches, ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step, rows_in_steps
from pinchpoint.analysis.work.structured_matrices import MadeDense, Structure, made_dense
from pinchpoint.diagnosis.evidence.device_work import busiest_place
from pinchpoint.diagnosis.evidence.host_spans import outermost
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_AND_STACKS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Table, Trace
from pinchpoint.trace.arrays import Rows
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=SHAPES_AND_STACKS,
    advice=NO_HINT,
)


def check(trace: Trace) -> Iterator[Found]:
    """Each kind of structure, as one finding."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None:
        return
    if not host.known("shapes").any():
        raise NotChecked("the recording has no shapes of inputs")
    found = made_dense(trace)
    for structure in Structure:
        mine = [one for one in found if one.structure is structure]
        if mine:
            yield _finding(trace, host, ops, mine)


def _finding(trace: Trace, host: Table, ops: Table, found: list[MadeDense]) -> Found:
    rows = _with_backward(trace, host, found)
    inside = within_rows(parents(host), rows)
    launched = inside[ops.filled("host_op", len(host))] & device_ops_in_steps(trace)
    work = np.flatnonzero(launched)
    took = ops["duration_ns"][work].astype(np.int64)
    busy_ns = round(per_step(trace, int(took.sum())))
    place, _ = busiest_place(
        trace,
        np.array([one.made for one in found]),
        np.array([host["duration_ns"][one.made] for one in found], np.int64),
    )
    first = max(found, key=lambda one: one.shape)
    kept = max(one.kept_ratio for one in found)
    made = trace.text(host, "name", first.made) or ""
    used = sorted({trace.text(host, "name", int(row)) or "" for one in found for row in one.used})
    size = " × ".join(map(str, first.shape))
    # Each operator leaves one launch, on the vector.
    fewer = min(len(rows) / max(len(work), 1), 1.0)
    said = _SAID[first.structure]
    return Found(
        summary=(
            f"{made} makes {said.what} a full matrix of {size}, and {', '.join(used)} compute"
            f" with its zeros: {duration(busy_ns)} of each recorded step"
            f"{f', in {place}' if place else ''}"
        ),
        evidence=(
            Evidence("device time of what reads the matrix", busy_ns, "ns per step"),
            Evidence("operations", round(per_step(trace, len(work)), 1), "per step"),
            Evidence("numbers of it that are not zero", round(kept, 4), "ratio"),
            Evidence("matrices made", round(per_step(trace, len(found)), 2), "per step"),
        ),
        cost_ns_per_step=busy_ns,
        changes=(
            ScaleDeviceOps(work, kept, flops_left=kept, bytes_left=kept),
            ReduceLaunches(work, fewer),
        ),
        location=place,
        fix=said.fix,
        hint=said.hint,
        confidence="high",
    )


@dataclass(frozen=True)
class _Said:
    """Of one structure, in words."""

    what: str
    fix: str
    hint: str


_SAID = {
    Structure.DIAGONAL: _Said(
        "a diagonal",
        "Compute with the diagonal itself: roots, divisions and products of its N numbers",
        "Independent(Normal(mean, std), 1)  # of a product with diag_embed(d): d[..., None] * x",
    ),
    Structure.ONE_HOT: _Said(
        "class numbers",
        "Take the rows by their numbers: a product with one-hot rows reads the whole table",
        "F.embedding(index, table)  # for F.one_hot(index, n).float() @ table",
    ),
}


def _with_backward(trace: Trace, host: Table, found: list[MadeDense]) -> Rows:
    """The rows that make and read the matrices, and those of the backward pass through them."""
    rows = np.unique(np.concatenate([np.append(one.touched, one.made) for one in found]))
    differentiates = within_rows(parents(host), rows)[forward_rows(trace)]
    back = outermost(trace, backward_nodes(trace) & differentiates) & rows_in_steps(trace, host)
    return np.union1d(rows, np.flatnonzero(back))
