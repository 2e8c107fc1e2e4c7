"""A compiled program makes a large matrix of which a product is wanted that needs none.

## What it looks for
The programs that XLA compiled, which a recording of JAX holds (`.xplane.pb`): matrix products one
side of which compares numbers with a counter (`jax.nn.one_hot`), or puts a vector on the diagonal
(`jnp.diag`), with what the backward pass does for them; and products whose result nothing but other
products reads, where all of them together take half of the operations or less the other way round.
And Jacobians and Hessians (`jax.jacfwd`, `jax.jacrev`, `jax.hessian`: what follows from an identity
under `vmap(jvp(` or `vmap(transpose(jvp(`) of which nothing but products with a few vectors is
used, or the sum of the diagonal. Named are those that take a twentieth of the step. Fewer than 32
classes, Jacobians that anything else reads, and products with a function in between are none of it.

## Why it matters
Each row of class numbers has a single one: the product reads and multiplies all of a table to copy
one of its rows, or all of a batch to add one. Multiplying by a diagonal of N numbers takes N times
what multiplying by the vector takes. `(a @ b) @ x` makes a large matrix of two narrow ones, which
`a @ (b @ x)` never does. A Jacobian of N inputs is N passes through the function; its product with
a vector is one (`jax.jvp`), of a Hessian two (`jax.jvp` of `jax.grad`). XLA changes none of this.

## How to fix it
`table[numbers]` for rows, `jax.ops.segment_sum` for sums, `d[:, None] * x` for a diagonal, and
brackets that join the narrow matrices with the others first. `jax.jvp` and `jax.vjp` for products
with Jacobians, `jax.jvp(jax.grad(f), (x,), (v,))[1]` with Hessians; for a trace the mean of
`v @ (J v)` for random signs `v` (Hutchinson's estimate, as flows take it).

What is said to be left of rows, sums and diagonals is what they read and write: on a device at half
of its memory's bandwidth, on a CPU 0.17 ns for each byte, as gathers and sums of XLA were seen to
take at most on one core (0.02 to 0.17; benchmarks of 500 to 50,000 classes).

## When to ignore it
Where sums of rows have to be added in the same order each time on a GPU, and the indices are not
sorted. Where the trace of a Jacobian has to be exact.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from pinchpoint.analysis.device.compiled import compiled_rows
from pinchpoint.analysis.host.on_cpu import compiled_for_cpu
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.compiled_on_cpu import cpu_work, won_on_cpu
from pinchpoint.diagnosis.evidence.compiled_work import compiled_work, needing, place_told
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.hardware import find_spec
from pinchpoint.trace import Table, Trace
from pinchpoint.trace.arrays import Floats, Ints, Mask, Rows
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=Record("the .xplane.pb that jax.profiler writes, which holds the compiled programs"),
    confirm=ANY_PROGRAM,
)

LEAST_RATIO = 0.05  # of the step, as of other causes in programs on CPUs
MOST_TOLD = 2  # places: the others wait for the next look
# Of gathers and scatters of rows by XLA on one core, measured: rows of 16 to 512 numbers, 1024 to
# 16384 of them, 500 to 50,000 classes.
CPU_NS_PER_BYTE, LEAST_CPU_NS_PER_BYTE = 0.17, 0.02
REACHED_RATIO = 2.0  # of the time that a device's memory needs: rows lie apart


@dataclass(frozen=True)
class _Kind:
    what: str
    fix: str
    hint: str


_KINDS = {
    "rows": _Kind(
        "Rows are looked up by a product with class numbers (one_hot)",
        "Look the rows up by their numbers",
        "h = table[numbers]  # in place of jax.nn.one_hot(numbers, n) @ table",
    ),
    "sums": _Kind(
        "Rows are added up by a product with class numbers (one_hot)",
        "Add rows to the place of their number",
        "jax.ops.segment_sum(rows, numbers, n)  # in place of one_hot(numbers, n).T @ rows",
    ),
    "diagonal": _Kind(
        "A vector is made a diagonal matrix, and multiplied by with all its zeros",
        "Multiply by the vector",
        "y = d[:, None] * x  # in place of jnp.diag(d) @ x",
    ),
    "jacobian": _Kind(
        "A whole Jacobian or Hessian is computed, of which nothing but products with vectors is"
        " used: {share} % of its passes would do",
        "Compute the product itself, by a pass forward (jvp) or back (vjp) for each vector",
        "hv = jax.jvp(jax.grad(f), (x,), (v,))[1]  # in place of jax.hessian(f)(x) @ v",
    ),
    "trace": _Kind(
        "A whole Jacobian is computed, of which nothing but the trace is used: {share} % of its"
        " passes estimate it",
        "Estimate the trace by products with random signs",
        "y, jv = jax.jvp(f, (x,), (v,)); trace = (v * jv).sum(-1)  # v: random signs",
    ),
    "order": _Kind(
        "Products are taken in a costly order, {share} % of their operations would do",
        "Put the brackets so that the narrow matrices are multiplied with the others first",
        "y = a @ (b @ x)  # in place of (a @ b) @ x",
    ),
}


def check(trace: Trace) -> Iterator[Found | Small]:
    """The places that take most time."""
    compiled, step_ns = trace.compiled_ops, steps(trace).typical_ns
    if compiled is None or not compiled.known("way").any() or not step_ns:
        return
    if not len(judged_steps(trace)):
        return
    kinds = {number: name for number, name in enumerate(trace.names) if name in _KINDS}
    mine = compiled.known("way") & np.isin(compiled.filled("way", -1), list(kinds))
    source = np.where(mine, _places(trace, compiled), -1)
    took = np.bincount(source[mine], compiled["duration_ns"][mine])
    on_cpu = compiled_for_cpu(trace)
    for place in np.argsort(-took, kind="stable")[: min(MOST_TOLD, np.count_nonzero(took))]:
        at = source == place
        yield from _on_cpu(trace, compiled, at) if on_cpu else _on_device(trace, compiled, at)


def _on_device(trace: Trace, compiled: Table, at: Mask) -> Iterator[Found | Small]:
    row = compiled_rows(trace)
    work = compiled_work(trace, (row >= 0) & at[row])
    spec = find_spec(trace.devices[0].name) if trace.devices else None
    if work is None:
        return
    base = steps(trace).typical_ns or 0
    if work.ns_per_step < LEAST_RATIO * base:
        yield Small(work.ns_per_step / max(base, 1), LEAST_RATIO)
        return
    rows, took = row[work.rows], np.maximum(work.took_ns, 1).astype(np.float64)
    rate = spec.memory_bytes_per_s if spec else None
    moved_ns = _bytes(compiled, rows) / rate * 1e9 if rate else 0.0 * took
    ratio = compiled["way_ratio"][rows]
    yield Found(
        **_said(trace, compiled, rows, took, work.ns_per_step, work.count),
        cost_ns_per_step=work.ns_per_step,
        **needing(
            trace,
            work,
            np.minimum(ratio + REACHED_RATIO * moved_ns / took, 1.0),
            np.minimum(ratio + moved_ns / took, 1.0),
        ),
    )


def _on_cpu(trace: Trace, compiled: Table, at: Mask) -> Iterator[Found | Small]:
    work, step_ns = cpu_work(trace, compiled, at), steps(trace).typical_ns or 0
    if work is None:
        return
    if work.ns_per_step < LEAST_RATIO * step_ns:
        yield Small(work.ns_per_step / max(step_ns, 1), LEAST_RATIO)
        return
    took, moved = work.took_ns, _bytes(compiled, work.rows)
    kept = compiled["way_ratio"][work.rows] * took
    left, least = (
        float(np.minimum(kept + each * moved, took).sum() / max(took.sum(), 1))
        for each in (CPU_NS_PER_BYTE, LEAST_CPU_NS_PER_BYTE)
    )
    yield Found(
        **_said(trace, compiled, work.rows, took, work.ns_per_step, work.count),
        **won_on_cpu(trace, work, left, least),
    )


def _said(
    trace: Trace, compiled: Table, rows: Rows, took: Floats, ns: int, count: float
) -> dict[str, Any]:
    longest = int(rows[took.argmax()])
    kind = _KINDS[trace.text(compiled, "way", longest) or ""]
    place = int(_places(trace, compiled)[longest])
    at = place_told(trace.names[place]) if place < len(trace.names) else None
    share = f"{100 * float(compiled['way_ratio'][longest]):.2g}"
    flops = per_step(trace, float(compiled.filled("flops", 0)[rows].astype(np.float64).sum()))
    return {
        "summary": (
            f"{kind.what.format(share=share)}{f' at {at.short}' if at else ''}:"
            f" {duration(ns)} of each recorded step in {count:.0f} operations"
        ),
        "evidence": (
            Evidence("such products, and matrices made for them", ns, "ns per step"),
            Evidence("their multiplications and additions", round(flops), "per step"),
            Evidence("of these needed", round(float(compiled["way_ratio"][longest]), 6), "ratio"),
            Evidence(
                "read and written otherwise",
                round(per_step(trace, float(_bytes(compiled, rows).sum()))),
                "bytes per step",
            ),
        ),
        "location": at,
        "fix": kind.fix,
        "hint": kind.hint,
        "confidence": "high",
    }


def _places(trace: Trace, compiled: Table) -> Ints:
    """Numbers of names; beyond all names where no line is known."""
    none = len(trace.names)
    elsewhere = compiled.filled("way_at", none)
    found: Ints = np.where(elsewhere < none, elsewhere, compiled.filled("source", none))
    return found


def _bytes(compiled: Table, rows: Rows) -> Floats:
    found: Floats = compiled.filled("way_bytes", 0)[rows].astype(np.float64)
    return found
