"""Matrix products of a compiled program take numbers of 16 bits that the program made wider.

## What it looks for
The programs that XLA compiled, which a recording of JAX holds (``.xplane.pb``). A product or
convolution on the device that computes in float32 (or float64) counts if one of its sides holds no
more than 16 bits (32): it was converted from such numbers, and nothing but constants and other such
values met it since. What hands these values to the products, and what works on their results, moves
twice the bytes for it. A product for which the program asks for more precision (`precision=`) is
meant so and does not count; nor does one of 16-bit operands with a float32 result.

## Why it matters
One strongly typed float32 or float64 value is enough: a NumPy scalar (`1 / np.sqrt(d)`), an array
that was made without a dtype, a table kept in float32. JAX converts what meets it, and all that
follows. The matrix units do half as many products in TF32, a quarter or less in true float32, and
every intermediate takes twice the memory.

## How to fix it
Bring the value into the type of what it meets, at the line that is named: a Python number
(`d ** -0.5` is weakly typed and promotes nothing), `jnp.asarray(table, x.dtype)`, or
`.astype(x.dtype)` behind it. Where sums in float32 are wanted, say that of the product alone:
`preferred_element_type=jnp.float32` keeps its operands narrow.

## When to ignore it
Where the digits are wanted: routers, preconditioners, small heads. Say so with
`precision=jax.lax.Precision.HIGHEST`, or accept the price.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.device.compiled import compiled_rows
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.diagnosis.evidence.attainable import PRODUCT_REACHED, PRODUCT_START_NS, attainable
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NotChecked, Rule
from pinchpoint.regex import regex
from pinchpoint.trace import Table, Trace
from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops",),
    record=Record("the .xplane.pb that jax.profiler writes, which holds the compiled programs"),
    confirm=ANY_PROGRAM,
)

HALF = 0.5  # of the time of a product: twice the peak of the matrix units, half the bytes
MOST_TOLD = 2  # places: the other lines are mostly consequences
_LINE = regex(r"(?P<file>[^\n]+):(?P<line>\d{1,7})$")
_SPELT = {"f32": ("float32", "16 bits", "bf16"), "f64": ("float64", "32 bits", "tf32")}


def check(trace: Trace) -> Iterator[Found]:
    """The lines that widen what most time of products is computed with."""
    ops, compiled = trace.device_ops, trace.compiled_ops
    if ops is None or compiled is None or not len(compiled):
        return
    if not (compiled.known("flops") | compiled.known("bytes")).any():
        raise NotChecked("the compiled programs are not in this recording")
    row = compiled_rows(trace)
    at = np.where(row >= 0, compiled.filled("widened_at", -1)[row], -1)
    at[~device_ops_in_steps(trace)] = -1
    took = np.bincount(at[at >= 0], ops["duration_ns"][at >= 0])
    for place in np.argsort(-took, kind="stable")[
        : min(MOST_TOLD, np.count_nonzero(took))
    ].tolist():
        found = _found(trace, compiled, row, at == place, trace.names[place])
        if found is not None:
            yield found


def _found(trace: Trace, compiled: Table, row: Rows, mine: Mask, place: str) -> Found | None:
    work = device_work(trace, mine, "products of widened numbers, and what is around them")
    ops = trace.device_ops
    if work is None or ops is None:
        return None
    counted = row[work.rows]
    product = compiled.known("flops")[counted]
    if not product.any():
        return None
    wide = trace.text(compiled, "widened_to", int(counted[0])) or "f32"
    now, before, dtype = _SPELT.get(wide, _SPELT["f32"])
    took = ops["duration_ns"][work.rows].astype(np.float64)
    products_ns = round(per_step(trace, float(took[product].sum())))
    spared = per_step(trace, float(compiled.filled("spared_bytes", 0)[counted].sum()))
    after = _after(trace, compiled, counted, took, product, dtype)
    where = _LINE.match(place)
    location = Location(where["file"], int(where["line"])) if where else work.place
    return Found(
        summary=(
            f"Numbers of {before} become {now} at {location.short if location else place}, and"
            f" {_counted(trace, work.rows[product])} products a step are computed in it:"
            f" {duration(products_ns)} of each recorded step, and"
            f" {duration(work.ns_per_step - products_ns)} more in what moves their numbers"
        ),
        evidence=(
            *work.evidence,
            Evidence(f"products in {now}", products_ns, "ns per step"),
            Evidence("moved for the wider type alone", round(spared), "bytes per step"),
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(ScaleDeviceOps(work.rows, after / np.maximum(took, 1.0), bytes_left=HALF),),
        location=location,
        fix=(
            f"Keep the type there: a Python number in place of a NumPy one, or the {now} array that"
            " it meets in the type of what it meets"
        ),
        hint="q = q * width ** -0.5  # 1 / np.sqrt(width) is a strongly typed float64",
        confidence="high" if products_ns else "medium",
    )


def _counted(trace: Trace, rows: Rows) -> str:
    return f"{per_step(trace, len(rows)):.0f}"


def _after(
    trace: Trace,
    compiled: Table,
    counted: Rows,
    took: NDArray[np.float64],
    product: Mask,
    dtype: str,
) -> NDArray[np.float64]:
    """What they take with narrow numbers: never less than half, nor than the device needs."""
    moved = compiled.filled("bytes", 0)[counted].astype(np.float64)
    spared = compiled.filled("spared_bytes", 0)[counted].astype(np.float64)
    left = np.where(moved > 0, 1 - np.minimum(spared / np.maximum(moved, 1), HALF), 1.0)
    after = took * np.where(product, HALF, left)
    well = attainable(trace)
    peak = well.spec.peak_flop_per_s(dtype) if well else None
    if well is not None and peak:
        flops = compiled.filled("flops", 0)[counted].astype(np.float64)
        computing = flops / (peak * PRODUCT_REACHED[dtype]) * 1e9
        moving = np.array([well.stream_ns(size) or 0.0 for size in moved * left])
        needed = PRODUCT_START_NS + np.maximum(computing, moving)
        after = np.where(product, np.maximum(after, needed), after)
    result: NDArray[np.float64] = np.minimum(after, took)
    return result
