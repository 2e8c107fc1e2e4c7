"""A batch of small matrices is factored one matrix at a time.

## What it looks for
One call of `torch.linalg` (QR, SVD, eigenvalues, inverse, Cholesky, LU, solve) on a batch of
matrices that launches at least one kernel for each matrix of the batch. The library has no batched
kernel for this operation or this size; no loop in Python shows it. Launches that do not grow with
the batch are no finding, however many. Not checked without shapes.

## Why it matters
Each kernel does a few multiplications on one multiprocessor, and launching it costs more than its
work: thousands of launches from one line.

## How to fix it
Write the operation out for the batch where matrices are tiny (Gram-Schmidt for a 3 × 3 QR, the
formula for an inverse of 2 × 2 and 3 × 3); use an operation that has batched kernels (`cholesky`,
`lu_factor`, `solve`); or do it on the CPU, where small batches take less than the launches.

## When to ignore it
Large matrices, of which each fills the device.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.costs import OperatorCall
from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.input_arguments import elements, input_shapes
from pinchpoint.analysis.replay import DropDeviceOps, ScaleHostSpans
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.host_spans import named, outermost
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_OF_INPUTS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints, Rows

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=SHAPES_OF_INPUTS,
    parent="operator-of-many-launches",
    advice=NO_HINT,
)

FEWEST_MATRICES = 16  # below, a loop over them costs less than what replaces it
LARGEST_MATRIX = 128  # rows or columns; each of larger ones is work for many multiprocessors
# Kernels of the same written out for the batch: a 3 x 3 Gram-Schmidt takes about sixty of
# elementwise work with its sums, a batched factorisation fewer.
WRITTEN_OUT_KERNELS = 60

_PREFIXES = ("aten::linalg_", "aten::_linalg_")
_OTHERS = ("aten::geqrf", "aten::orgqr", "aten::ormqr", "aten::cholesky", "aten::cholesky_inverse")
_NO_FACTORING = ("norm", "vecdot", "cross", "diagonal", "multi_dot", "matmul")


def check(trace: Trace) -> Iterator[Found]:
    """Calls with a kernel for each of many matrices."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None:
        return
    factoring = np.flatnonzero(outermost(trace, named(trace, _factors)))
    if not len(factoring):
        return
    if not host.known("shapes").any():
        raise NotChecked("the recording has no shapes of inputs")
    matrices = _matrices(trace, factoring)
    wanted = np.zeros(len(host), np.bool_)
    wanted[factoring] = True
    around = np.append(nearest(parents(host), wanted), len(host))
    by_call = around[ops.filled("host_op", len(host))]
    launches = np.bincount(by_call, minlength=len(host) + 1)[factoring]
    slow = factoring[(matrices >= FEWEST_MATRICES) & (launches >= matrices)]
    work = device_work(trace, np.isin(by_call, slow), "factoring matrices one by one")
    if work is None:
        return
    batch = int(matrices[np.isin(factoring, slow)].max())
    yield Found(
        summary=(
            f"{trace.text(host, 'name', int(slow[0]))} factors {batch} small matrices one at a"
            f" time: {work.count:.0f} kernels a step,"
            f" {round(float(launches.max()) / batch, 1):g} for each matrix"
        ),
        evidence=(
            *work.evidence,
            Evidence("matrices in a call", batch, "count"),
            Evidence("kernels for each matrix", round(float(launches.max()) / batch, 1), "count"),
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=_written_out(by_call, work.rows),
        location=work.place,
        fix="Write the operation out for the whole batch, or use one that has batched kernels",
        hint="a = F.normalize(m[..., 0], dim=-1)  # and so on: Gram-Schmidt for tiny matrices",
    )


def _factors(name: str) -> bool:
    listed = name.startswith(_PREFIXES) or name in _OTHERS
    return listed and not any(other in name for other in _NO_FACTORING)


def _matrices(trace: Trace, rows: Rows) -> Ints:
    """How many small matrices the first input of each row is; 0 where it is none."""
    host = trace.host_ops
    assert host is not None
    counts = []
    for row in rows.tolist():
        shapes = input_shapes(trace.text(host, "shapes", row) or "")
        first = OperatorCall("", shapes or ()).shape(0) or ()
        small = len(first) > 2 and max(first[-2:]) <= LARGEST_MATRIX
        counts.append(elements(first[:-2]) if small else 0)
    return np.array(counts, np.int64)


def _written_out(by_call: Rows, rows: Rows) -> tuple[DropDeviceOps, *tuple[ScaleHostSpans, ...]]:
    """Each call keeps as many kernels, spread over its own, as the batch written out has."""
    dropped, spans = [], []
    for call in np.unique(by_call[rows]).tolist():
        mine = rows[by_call[rows] == call]
        step = max(1, -(-len(mine) // WRITTEN_OUT_KERNELS))
        dropped.append(np.delete(mine, np.s_[::step]))
        spans.append(ScaleHostSpans(np.array([call], np.intp), min(1.0, 1 / step)))
    return (DropDeviceOps(np.concatenate(dropped)), *spans)
