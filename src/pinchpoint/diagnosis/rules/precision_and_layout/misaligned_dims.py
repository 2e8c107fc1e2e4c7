"""Sizes that keep fast matrix kernels out.

## What it looks for
Products on the tensor cores by kernels that are built for loads of one or two elements (`align1`,
`align2` in their names), and the sizes that forced the library to take them. Wide loads need 16
bytes: sizes that are multiples of 8 in 16-bit types, of 4 in TF32. The kernel is the evidence: odd
sizes alone are none, as they cost nothing where the library does not take such a kernel. Where
shapes were recorded they name the sizes; a view that begins off the grid forces the same kernel.

The gain is between that of operands that come padded, and that of copying each of them into a
padded one before its product: where a size is small, the copy takes as long as the product.

## Why it matters
Such kernels leave the tensor cores waiting for their operands: a product with a dimension of 4095
takes five times as long as one with 4096.

## How to fix it
Pad the size to the next multiple of 8, better of 64: the vocabulary (50257 → 50304), the hidden
size, the number of classes. Padded rows of a vocabulary are never the target and cost next to
nothing.

## When to ignore it
Where the size is given by something outside, and padding would be more than the gain.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.costs import OperatorCall
from pinchpoint.analysis.device.categories import by_distinct
from pinchpoint.analysis.device.kernel_precision import (
    MatrixUnits,
    Precision,
    alignment_of_kernel_name,
    precision_of_device_ops,
)
from pinchpoint.analysis.host.input_arguments import Shape
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.diagnosis.evidence.attainable import Attainable, Estimate, attainable, scaled
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import Need, Record
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.hardware.dtypes import format_of
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import distinct
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops",),
    record=Record(
        "device activity: ProfilerActivity.CUDA; sizes: record_shapes=True",
        Need.RECORD_SHAPES,
        Record("device activity; sizes", Need.DEVICE),
    ),
    confirm='pinchpoint bench ab -- "python train.py" "python train_padded.py"',
)

WIDE_LOAD_ELEMENTS = {Precision.BF16: 8, Precision.FP16: 8, Precision.TF32: 4}  # of 16 bytes
# Of what they took, where sizes are not recorded. Large: align1 kernels reach 0.14 of the bf16 peak
# on an H100, aligned ones 0.7. Small: where a size is 13 or 27, moving the padded operands takes
# half of what such kernels take (12 products of one program, H200).
LARGE_RATIO, SMALL_RATIO = 0.2, 0.5

_WIDE_LOAD_BYTES = 16  # the widest load of a thread
_MULTIPLIED_AS = {"bf16": "bf16", "fp16": "fp16", "fp32": "tf32"}


def check(trace: Trace) -> Iterator[Found]:
    """Products by kernels for unaligned operands."""
    work = device_work(trace, _unaligned(trace), "products by kernels for unaligned operands")
    if work is None:
        return
    sizes = _odd_sizes(trace, work.rows)
    well = attainable(trace)
    evidence = work.evidence
    if sizes:
        evidence += (Evidence("sizes that forbid wide loads", ", ".join(sizes), ""),)
    yield Found(
        summary=(
            f"{_products(work.count)} in kernels for unaligned operands"
            f"{_because(sizes)}, {duration(work.ns_per_step)} of each recorded step"
        ),
        evidence=evidence,
        cost_ns_per_step=work.ns_per_step,
        changes=(scaled(trace, work.rows, _padded_before(well) if well else None, SMALL_RATIO),),
        at_best=(scaled(trace, work.rows, _padded(well) if well else None, LARGE_RATIO),),
        location=work.place,
        fix="Pad these sizes to a multiple of 8, better of 64",
        hint=_padding(sizes),
    )


def _products(count: float) -> str:
    said = f"{count:.3g}"
    return "1 product a step runs" if said == "1" else f"{said} products a step run"


def _unaligned(trace: Trace) -> NDArray[np.bool_]:
    ops, found = trace.device_ops, precision_of_device_ops(trace)
    assert ops is not None
    aligned = by_distinct(trace.names, ops["name"], alignment_of_kernel_name)
    enough = np.zeros(max(Precision) + 1, np.uint8)
    for precision, elements in WIDE_LOAD_ELEMENTS.items():
        enough[precision] = elements
    wanted: NDArray[np.bool_] = (aligned > 0) & (aligned < enough[found.precision])
    wanted &= found.matrix_units == MatrixUnits.YES
    return wanted


def _padded(well: Attainable) -> Estimate:
    """The same product of operands that come padded."""

    def product(of: LaunchedCall) -> float | None:
        dtype, multiple = _type_of(of)
        return well.product_ns(replace(of, call=_of_multiples(of.call, multiple)), dtype)

    return product


def _padded_before(well: Attainable) -> Estimate:
    """With a copy before it of each operand that has to be padded there."""
    of_padded = _padded(well)

    def product(of: LaunchedCall) -> float | None:
        multiple, call, alone = _type_of(of)[1], of.call, of_padded(of)
        wide = _of_multiples(call, multiple)
        odd = [i for i in call.tensors() if call.shape(i) != wide.shape(i)]
        copied = well.stream_ns(sum(call.bytes(i) + wide.bytes(i) for i in odd))
        return None if alone is None or copied is None else alone + copied

    return product


def _of_multiples(call: OperatorCall, multiple: int) -> OperatorCall:
    """The call with matrices whose rows and columns are multiples."""

    def padded(shape: Shape) -> Shape:
        return *shape[:-2], *(-(-size // multiple) * multiple for size in shape[-2:])

    shapes = [call.shape(i) for i in range(len(call.shapes))]
    wide = [of if s is None else padded(s) for of, s in zip(call.shapes, shapes, strict=True)]
    return replace(call, shapes=tuple(wide))


def _type_of(of: LaunchedCall) -> tuple[str, int]:
    """The type as data sheets spell it, and the multiple that its sizes should be of."""
    for known in map(format_of, of.call.dtypes):
        if known is not None and known.bytes and known.peak in _MULTIPLIED_AS:
            return _MULTIPLIED_AS[known.peak], _WIDE_LOAD_BYTES // known.bytes
    return "bf16", 8


def _odd_sizes(trace: Trace, rows: NDArray[np.intp]) -> list[str]:
    """The sizes of operands that are no multiples, those with most time first."""
    ops, calls = trace.device_ops, launched_calls(trace)
    assert ops is not None
    weight: dict[int, int] = {}
    for which in distinct(calls.which[rows]).tolist():
        if which == len(calls.calls):
            continue
        of = calls.calls[which]
        took = int(ops["duration_ns"][rows[calls.which[rows] == which]].sum())
        for size in {s for i in range(len(of.call.shapes)) for s in (of.call.shape(i) or ())[-2:]}:
            if size > 1 and size % _type_of(of)[1]:
                weight[size] = weight.get(size, 0) + took
    return [str(size) for size in sorted(weight, key=lambda s: -weight[s])[:3]]


def _because(sizes: list[str]) -> str:
    plural = "s" if len(sizes) > 1 else ""
    return f", because of the size{plural} {' and '.join(sizes)}" if sizes else ""


def _padding(sizes: list[str]) -> str:
    if not sizes:
        return "size = (size + 63) // 64 * 64"
    first = int(sizes[0])
    return f"size = {(first + 63) // 64 * 64}  # in place of {first}"
