"""A program on the CPU computes in double precision.

## What it looks for
Operators of a program without a device that get float64 tensors, by the types of their inputs.
Scalars are no tensors. Programs on a device are judged by `fp64-by-accident`.

## Why it matters
A vector register holds half as many doubles, and memory moves twice the bytes: products and
elementwise work take twice as long. NumPy makes float64 unless told otherwise, and one such array
turns a whole model into double.

## How to fix it
Make the data float32 where it is created (`np.float32`, `torch.from_numpy(x).float()`), and the
model with it.

## When to ignore it
Where the result needs more than seven digits. Where matrices are factored in double precision
(Cholesky, LU, eigenvalues), this may fail in single: then it is undecided.
"""

from collections.abc import Iterator

from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.evidence.solvers import SOLVERS
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import SHAPES_AND_TYPES, Record
from pinchpoint.diagnosis.rule import NO_KNOB, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import judged, too_small, typed
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named

RULE = Rule(needs=("host_ops",), record=SHAPES_AND_TYPES, knobs=("float32",), advice=NO_KNOB)

_TRIAL = Record("the result of a trial in float32")
HALF = 0.5  # of the lanes of a register, and of the bytes


def check(trace: Trace) -> Iterator[Found | Small]:
    """Operators on float64 tensors."""
    mine = judged(trace)
    if mine is None:
        return
    double = typed(trace, "double")
    if double is None:
        raise NotChecked("the types of the inputs are not recorded")
    assert trace.host_ops is not None
    operator = trace.host_ops["kind"] == HostKind.OPERATOR
    spans = host_spans(trace, mine & double & operator, "operators on float64 tensors")
    if spans is None:
        return
    if small := too_small(trace, spans):
        yield small
        return
    if _factors(trace, mine & double & operator):
        raise NotChecked(
            f"{spans.count:.0f} operators a step compute in double precision, and matrices are"
            " factored among them: whether they can be in float32 does not show",
            _TRIAL,
            fits=True,
        )
    yield Found(
        summary=(
            f"{spans.count:.0f} operators a step compute on float64 tensors,"
            f" {duration(spans.ns_per_step)} of it{spans.where}"
        ),
        evidence=(*spans.evidence, Evidence("time that float32 takes of it", HALF, "ratio")),
        cost_ns_per_step=spans.ns_per_step,
        changes=(ScaleHostSpans(spans.rows, HALF),),
        location=spans.place,
        fix="Make the data float32 where it is created, and the model with it",
        hint="x = np.asarray(x, np.float32); model = model.float()",
        confirm="pinchpoint try --knob float32 -- python train.py",
    )


def _factors(trace: Trace, rows: Mask) -> bool:
    """Whether matrices are factored by any of these operators, or solved with."""
    assert trace.host_ops is not None
    named = rows_named(trace, trace.host_ops, lambda name: SOLVERS.match(name) is not None)
    return bool((named & rows).any())
