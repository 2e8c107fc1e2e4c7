"""float32 products run outside the tensor cores.

## What it looks for
Matrix products and convolutions in float32 whose kernels are of the SIMT kind (plain fused
multiply-adds), on a device that has tensor cores. The kernel's kind is the evidence; products too
short to be bound by arithmetic do not count, nor do kernels that only scale or sum results, and
nothing gets faster than its operands can be moved. Where a run says that TF32 was allowed to
convolutions, as it is from the start, cuDNN has no such kernel for those that run otherwise, and
products alone count. Not checked on a device without TF32; undecided
where its matrix units take 16 bits and such products are much of the step.

## Why it matters
The same product in TF32 keeps float32's range and storage, and runs several times faster on the
tensor cores; PyTorch leaves it off for matrix products unless told.

## How to fix it
`torch.set_float32_matmul_precision("high")`, or bfloat16 autocast.

## When to ignore it
Where ten bits of mantissa in the inputs of products are not enough.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.device.categories import Category, by_distinct, category_of_device_ops
from pinchpoint.analysis.device.kernel_precision import (
    MatrixUnits,
    Precision,
    is_beside_product,
    precision_of_device_ops,
)
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.replay.least_durations import limits_ns
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import DEVICE, Record
from pinchpoint.diagnosis.rule import ANY_PROGRAM, Framework, NotChecked, Rule
from pinchpoint.hardware.specs import find_spec
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

_IN_GENERAL = "Let float32 products use TF32, or use bfloat16"
_CUPY = "export CUPY_TF32=1  # before the program starts"

RULE = Rule(
    needs=("device_ops",),
    record=DEVICE,
    knobs=("tf32", "autocast"),
    advice={
        Framework.OTHER: {"fix": _IN_GENERAL, "hint": None, "confirm": ANY_PROGRAM},
        Framework.CUPY: {"fix": _IN_GENERAL, "hint": _CUPY, "confirm": ANY_PROGRAM},
    },
    confirm="pinchpoint try --knob tf32 -- python train.py",
)

REACHED_RATIO = 0.8  # TF32 products reach this much less of their peak than SIMT ones do of theirs
USUAL_SPEEDUP = 6.0  # where the device's data sheet is not known
FIRST_TF32 = (8, 0)  # compute capability: Ampere
MATRIX_UNITS_RATIO = 3.0  # peak of 16 bits over float32: two packed give 2, matrix units 4 to 8
MUCH_RATIO = 0.25  # of the step: with less of it in such products, a doubt is not worth a sentence
LEAST_KERNEL_NS = 20_000  # shorter products are bound by latency, not by arithmetic


def check(trace: Trace) -> Iterator[Found]:
    """float32 products on plain cores."""
    ops = trace.device_ops
    if ops is None:
        return
    found, category = precision_of_device_ops(trace), category_of_device_ops(trace)
    plain = np.isin(category, (Category.GEMM, Category.CONVOLUTION))
    plain &= (found.matrix_units == MatrixUnits.NO) & (found.precision == Precision.FP32)
    plain &= ops["duration_ns"] >= LEAST_KERNEL_NS
    values = None if trace.run is None else trace.run.values
    if values is not None and values.cudnn_allow_tf32:
        plain &= category != Category.CONVOLUTION
    plain &= by_distinct(trace.names, ops["name"], is_beside_product) == 0
    work = device_work(trace, plain, "float32 products on plain cores")
    if work is None:
        return
    cost = work.ns_per_step
    _has_tf32(trace, much=cost >= MUCH_RATIO * (steps(trace).typical_ns or 0))
    yield Found(
        summary=(
            f"float32 products run outside the tensor cores, {duration(cost)} of each recorded step"
        ),
        evidence=work.evidence,
        cost_ns_per_step=cost,
        changes=(ScaleDeviceOps(work.rows, _left_ratio(trace, work.rows)),),
        location=work.place,
        fix="Let float32 products use TF32, or use bfloat16 autocast",
        hint='torch.set_float32_matmul_precision("high")',
    )


def _left_ratio(trace: Trace, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Of each product's time, what TF32 leaves: not less than moving its operands takes."""
    assert trace.device_ops is not None
    took = trace.device_ops["duration_ns"][rows]
    least = np.maximum(*(limit[rows] for limit in limits_ns(trace)))
    ratio: NDArray[np.float64] = np.maximum(least / took, 1 / _speedup(trace))
    return ratio


def _has_tf32(trace: Trace, *, much: bool) -> None:
    """NotChecked where the device has no TF32."""
    device = trace.devices[0] if trace.devices else None
    spec = find_spec(device.name) if device is not None else None
    if device is None:
        return
    if spec is None:
        if device.vendor == "nvidia" and (device.compute_capability or FIRST_TF32) < FIRST_TF32:
            raise _without_tf32(device.name or "the device", fits=False)
        return
    plain, matrix, half = (spec.peak_flop_per_s(kind) for kind in ("fp32", "tf32", "fp16"))
    if matrix is None or plain is None:
        units = plain is not None and half is not None and half > MATRIX_UNITS_RATIO * plain
        raise _without_tf32(spec.name, fits=much and units)


def _speedup(trace: Trace) -> float:
    """How much faster TF32 products are on this device, which has it."""
    spec = find_spec(trace.devices[0].name) if trace.devices else None
    if spec is None:
        return USUAL_SPEEDUP
    plain, matrix = spec.peak_flop_per_s("fp32"), spec.peak_flop_per_s("tf32")
    assert plain is not None
    assert matrix is not None
    return REACHED_RATIO * matrix / plain


def _without_tf32(device: str, *, fits: bool) -> NotChecked:
    return NotChecked(
        f"{device} has no TF32 matrix units; what 16 bits would give there is not estimated",
        Record(
            'an autocast run: with torch.autocast("cuda", torch.float16), and a gradient scaler'
        ),
        fits=fits,
    )
