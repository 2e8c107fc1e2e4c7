"""A program on the CPU computes in double precision.

## What it looks for
Operators of a program without a device that get float64 tensors, by the types of their inputs.
Scalars are no tensors. Of programs that XLA compiled, the operations that take or give arrays of
float64, as the recording of JAX tells them (`.xplane.pb`). Programs on a device are judged by
`fp64-by-accident`.

## Why it matters
A vector register holds half as many doubles, and memory moves twice the bytes: products and
elementwise work take twice as long. NumPy makes float64 unless told otherwise, and one such array
turns a whole model into double. JAX makes float64 only where `jax_enable_x64` is on; from then on a
NumPy array or `np.float64` number makes double of all that meets it.

## How to fix it
Make the data float32 where it is created (`np.float32`, `torch.from_numpy(x).float()`), and the
model with it; in JAX, `jnp.asarray(x, jnp.float32)`, or leave `jax_enable_x64` off.

## When to ignore it
Where the result needs more than seven digits. Where matrices are factored in double precision
(Cholesky, LU, eigenvalues), this may fail in single: then it is undecided.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.on_cpu import compiled_for_cpu
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.compiled_work import place_told
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.evidence.one_side import leaves
from pinchpoint.diagnosis.evidence.solvers import SOLVERS
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small
from pinchpoint.diagnosis.record import SHAPES_AND_TYPES, Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NO_KNOB, NotChecked, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import LEAST_RATIO, judged, too_small, typed
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Table, Trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.durations import duration
from pinchpoint.trace.intervals import flatten
from pinchpoint.trace.names import rows_named

RULE = Rule(needs=("host_ops",), record=SHAPES_AND_TYPES, knobs=("float32",), advice=NO_KNOB)

_TRIAL = Record("the result of a trial in float32")
HALF = 0.5  # of the lanes of a register, and of the bytes
# A judgement: what is bound neither by vectors nor by memory takes as long in float32.
LEAST_WON = 0.25
_SOLVERS_OF_XLA = regex(r"^(cholesky|lu|eigh?|svd|qr|geqrf|triangular_solve|lapack)")


def check(trace: Trace) -> Iterator[Found | Small]:
    """Operators on float64 tensors."""
    if compiled_for_cpu(trace):
        yield from _of_compiled(trace)
        return
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


def _of_compiled(trace: Trace) -> Iterator[Found | Small]:
    """The same of programs that XLA compiled."""
    compiled, step_ns = trace.compiled_ops, steps(trace).typical_ns
    if compiled is None or not step_ns:
        return
    here = (judged_steps(trace).step_of(compiled["start_ns"]) >= 0) & leaves(trace, compiled)
    mine = here & compiled.filled("double", False).astype(np.bool_)
    ns = round(per_step(trace, flatten(compiled["start_ns"][mine], compiled.end_ns[mine]).total))
    if not mine.any():
        return
    if ns < LEAST_RATIO * step_ns:
        yield Small(ns / step_ns, LEAST_RATIO)
        return
    used = np.unique(compiled["op"][mine]).tolist()
    if any(_SOLVERS_OF_XLA.search(trace.names[name]) for name in used):
        raise NotChecked(
            "compiled programs compute in double precision, and matrices are factored among them:"
            " whether they can be in float32 does not show",
            _TRIAL,
            fits=True,
        )
    at = _widened_at(trace, compiled, mine)
    count = per_step(trace, int(mine.sum()))
    yield Found(
        summary=(
            f"{count:.0f} operations a step of compiled programs compute on float64 arrays,"
            f" {duration(ns)} of it{f', from {at.short} on' if at else ''}"
        ),
        evidence=(
            Evidence("operations on float64 arrays", ns, "ns per step"),
            Evidence("operations", round(count, 2), "per step"),
            Evidence("time that float32 takes of it", HALF, "ratio"),
        ),
        cost_ns_per_step=ns,
        saving_ns_per_step=(round(LEAST_WON * ns), round(HALF * ns)),
        location=at,
        fix="Make the data float32 where it is created, or leave jax_enable_x64 off",
        hint="scale = jnp.asarray(scale, x.dtype)",
        confirm=ANY_PROGRAM,
    )


def _widened_at(trace: Trace, compiled: Table, mine: Mask) -> Location | None:
    """The line that made double of narrower numbers; else that of most time."""
    for column in ("widened_at", "source"):
        rows = np.flatnonzero(mine & compiled.known(column))
        if len(rows):
            took = np.bincount(compiled[column][rows], compiled["duration_ns"][rows])
            return place_told(trace.names[int(took.argmax())])
    return None
