"""float32 products run outside the tensor cores.

## What it looks for
Matrix products and convolutions in float32 whose kernels are of the SIMT kind (plain fused
multiply-adds), on a device that has tensor cores.

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

from pinchpoint.analysis.categories import Category, category_of_device_ops
from pinchpoint.analysis.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.precision import MatrixUnits, Precision, precision_of_device_ops
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.diagnosis.locate import location_of
from pinchpoint.diagnosis.rule import Evidence, Finding, NotChecked
from pinchpoint.hardware.specs import find_spec
from pinchpoint.trace import Trace

NEEDS = ("device_ops",)
RECORD = "device activity: ProfilerActivity.CUDA"

REACHED_RATIO = 0.8  # TF32 products reach this much less of their peak than SIMT ones do of theirs
USUAL_SPEEDUP = 6.0  # where the device's data sheet is not known


def check(trace: Trace) -> Iterator[Finding]:
    """float32 products on plain cores."""
    ops = trace.device_ops
    if ops is None:
        return
    speedup = _speedup(trace)
    precision, category = precision_of_device_ops(trace), category_of_device_ops(trace)
    products = np.isin(category, (Category.GEMM, Category.CONVOLUTION))
    plain = precision.matrix_units == MatrixUnits.NO
    plain &= np.isin(precision.precision, (Precision.FP32,))
    rows = np.flatnonzero(products & plain & device_ops_in_steps(trace))
    if not len(rows):
        return
    took = ops["duration_ns"][rows]
    longest = int(rows[took.argmax()])
    cost = round(per_step(trace, int(took.sum())))
    host = ops.value("host_op", longest)
    yield Finding(
        summary=f"float32 products run outside the tensor cores, {cost / 1e6:.1f} ms of each step",
        evidence=(
            Evidence("float32 products on plain cores", cost, "ns per step"),
            Evidence(
                "longest kernel",
                int(took.max()),
                "ns",
                int(ops["start_ns"][longest]),
                trace.text(ops, "name", longest),
            ),
        ),
        cost_ns_per_step=cost,
        changes=(ScaleDeviceOps(rows, 1 / speedup),),
        location=None if host is None else location_of(trace, int(host)),
        fix="Let float32 products use TF32, or use bfloat16 autocast",
        hint='torch.set_float32_matmul_precision("high")',
        confirm="pinchpoint bench ab --knob matmul_precision=highest,high -- python train.py",
    )


def _speedup(trace: Trace) -> float:
    """How much faster TF32 products are on this device; NotChecked where it has none."""
    spec = find_spec(trace.devices[0].name) if trace.devices else None
    if spec is None:
        return USUAL_SPEEDUP
    plain, matrix = spec.peak_flop_per_s("fp32"), spec.peak_flop_per_s("tf32")
    if matrix is None or plain is None:
        raise NotChecked(f"{spec.name} has no TF32 matrix units")
    return REACHED_RATIO * matrix / plain
