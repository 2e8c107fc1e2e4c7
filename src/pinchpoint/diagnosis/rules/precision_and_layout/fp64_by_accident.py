"""Work is done in double precision.

## What it looks for
Kernels that compute on 64-bit floating-point numbers, by their names and the types of their
operators' inputs, and copies of such data to the device. A kernel's own name decides; inputs only
where it says nothing of types. A double that is a scalar argument is no such work. Where all work
is in double precision, and neither a model nor a backward pass is seen, or half of it and more
factorises or solves, this is not decided.

## Why it matters
A product in double precision takes several times as long as one of float32 on the tensor cores,
on a device without fast double units more than thirty times; everything else moves twice the bytes.
NumPy makes float64 unless told otherwise, and one such array can turn a whole model into double.

## How to fix it
Make the data float32 where it is created (`np.float32`, `torch.tensor(x, dtype=torch.float32)`),
or convert it once it is on the device (`x.to(device).float()`). The prediction takes it that
products then use TF32.

## When to ignore it
Where the result needs more than seven digits.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.device.kernel_precision import Precision, precision_of_device_ops
from pinchpoint.analysis.host.ancestry import parents, within
from pinchpoint.analysis.host.attribution import backward_nodes
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.diagnosis.evidence.attainable import attainable, scaled
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.solvers import SOLVERS
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import DEVICE, Record
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import DeviceKind, HostKind, Trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named

RULE = Rule(
    needs=("device_ops",),
    record=DEVICE,
    knobs=("float32",),
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "python train.py" "python train_float32.py"',
)

_TRIAL = Record("the result of a trial in float32")
MIXED_RATIO = 0.01  # of the kernels' time: less is a mask, an index or a value for a log
HALF_THE_BYTES = 0.5  # of all that is bound by memory or a link
USUAL_RATIO = 0.12  # of products, where the device or the sizes are not known: 67 to 495 TFLOP/s

_PRODUCTS = (Category.GEMM, Category.CONVOLUTION, Category.ATTENTION)


def check(trace: Trace) -> Iterator[Found]:
    """Kernels and copies of double precision."""
    work = device_work(trace, _double(trace), "work in double precision")
    if work is None:
        return
    purpose = _purpose(trace)
    if purpose:
        raise NotChecked(
            f"all work is in double precision, and {purpose}: whether the result needs it does not"
            " show",
            _TRIAL,
            fits=True,
        )
    product = np.isin(category_of_device_ops(trace)[work.rows], _PRODUCTS)
    yield Found(
        summary=(
            f"{work.count:.0f} kernels and copies a step work in double precision,"
            f" {duration(work.ns_per_step)} of each recorded step"
        ),
        evidence=work.evidence,
        cost_ns_per_step=work.ns_per_step,
        changes=(
            _in_single(trace, work.rows[product]),
            ScaleDeviceOps(work.rows[~product], HALF_THE_BYTES, bytes_left=HALF_THE_BYTES),
        ),
        location=work.place,
        fix="Make the data float32 where it is created, and let products use TF32",
        hint="x = np.asarray(x, np.float32); model = model.float()",
    )


def _purpose(trace: Trace) -> str:
    """What tells a solver, where nothing computes in another format: nothing runs a model or
    differentiates, or it mostly factorises all the same. Empty where neither is so.

    A solver may need its digits. Of a model hardly anybody does, and where formats are mixed one of
    them came in from somewhere.
    """
    ops, host = trace.device_ops, trace.host_ops
    assert ops is not None
    of_models = host is not None and (
        (host["kind"] == HostKind.MODULE).any() or backward_nodes(trace).any()
    )
    format_ = precision_of_device_ops(trace).precision
    mine = device_ops_in_steps(trace) & (ops["kind"] == DeviceKind.KERNEL)
    took = np.bincount(format_[mine], ops["duration_ns"][mine], max(Precision) + 1)
    other = took[Precision.FP32 : Precision.INT8].sum()
    if other >= MIXED_RATIO * took.sum():
        return ""
    if not of_models:
        return "no model is run or trained"
    return "most of it factorises matrices" if _factorises(trace, mine) else ""


def _factorises(trace: Trace, mine: Mask) -> bool:
    """Whether half of these operations' time and more is in what loses digits as matrices are near
    singular, which for a Gaussian process or a least-squares fit they are."""
    ops, host = trace.device_ops, trace.host_ops
    if ops is None or host is None:
        return False
    solver = rows_named(trace, host, lambda name: SOLVERS.match(name) is not None)
    inside = np.append(within(parents(host), solver), False)[ops.filled("host_op", len(host))]
    took = ops["duration_ns"]
    return bool(2 * took[mine & inside].sum() >= took[mine].sum())


def _double(trace: Trace) -> NDArray[np.bool_]:
    ops = trace.device_ops
    assert ops is not None
    double = precision_of_device_ops(trace).precision == Precision.FP64
    copied = launched_calls(trace).where(lambda c: c.call.dtypes[:1] == ("double",))
    wanted: NDArray[np.bool_] = double | (copied & (ops["kind"] == DeviceKind.COPY))
    return wanted


def _in_single(trace: Trace, rows: NDArray[np.intp]) -> ScaleDeviceOps:
    well = attainable(trace)
    if well is None:
        return ScaleDeviceOps(rows, USUAL_RATIO, bytes_left=HALF_THE_BYTES)
    spec = well.spec
    dtype = "tf32" if spec.peak_flop_per_s("tf32") else "fp32"
    double = spec.peak_flop_per_s("fp64_matrix") or spec.peak_flop_per_s("fp64")
    single = spec.peak_flop_per_s(dtype)
    usual = min(double / single, 1.0) if double and single else USUAL_RATIO

    def as_single(of: LaunchedCall) -> float | None:
        return well.product_ns(of, dtype)

    return scaled(trace, rows, as_single, usual, bytes_left=HALF_THE_BYTES)
