"""Products in a number format that the device's matrix units do not take.

They are near the limit of their format, and far from what the matrix units do in a narrower one.
All of them are one finding: the format is one switch of the program.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.causal.limits import KERNEL_START_NS, MEMORY_REACHED, needed_limits
from pinchpoint.analysis.costs import cost_of
from pinchpoint.analysis.costs.convolution import depthwise_window
from pinchpoint.analysis.device.kernel_precision import Precision, precision_of_device_ops
from pinchpoint.analysis.limits.roofs import roofs
from pinchpoint.analysis.replay import LimitDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.work.operator_work import peak_type
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Found, Small
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Floats, Rows
from pinchpoint.trace.durations import duration

FAR_RATIO = 3.0  # as of slow-operator: limits are right within a factor of two
LEAST_GAIN_RATIO = 0.15  # of the step: where the result may not allow it, only much is worth a try


def in_a_wide_format(trace: Trace, base_ns: int | None) -> Iterator[Found | Small]:
    """Those whose change is worth a try."""
    ops, formats = trace.device_ops, precision_of_device_ops(trace)
    assert ops is not None
    products = launched_calls(trace).where(_is_product) & device_ops_in_steps(trace)
    # Nobody asks for 64 bits by leaving a switch as it is; by accident: ``fp64_by_accident``.
    rows = np.flatnonzero(products & (formats.precision != Precision.FP64))
    needs = _narrow_ns(trace, rows)
    wide = ops["duration_ns"][rows] >= FAR_RATIO * needs
    rows, needs = rows[wide], needs[wide]
    mine = np.zeros(len(ops), np.bool_)
    mine[rows] = True
    work = device_work(trace, mine, "products in a wide number format")
    if work is None or not base_ns:
        return
    saving = work.ns_per_step - per_step(trace, round(float(needs.sum())))
    if saving < LEAST_GAIN_RATIO * base_ns:
        yield Small(saving / base_ns, LEAST_GAIN_RATIO)
        return
    told = int(np.bincount(formats.precision[rows], ops["duration_ns"][rows]).argmax())
    label = Precision(told).label if told else "a wide format"
    where = f" in {work.place}" if work.place else ""
    yield Found(
        summary=(
            f"Products take {duration(work.ns_per_step)} of the device's time a step{where} in"
            f" {label}, which the device's matrix units do several times as fast in"
            f" {_narrow_formats(trace)}"
        ),
        evidence=work.evidence,
        cost_ns_per_step=work.ns_per_step,
        changes=(LimitDeviceOps(rows, needs),),
        location=work.place,
        fix=f"Multiply in {_narrow_formats(trace)} (autocast), where the result allows it",
        confidence="low",
    )


def _narrow_formats(trace: Trace) -> str:
    known = roofs(trace)
    return "TF32 or 16 bits" if known is not None and "tf32" in known.compute else "16 bits"


def _narrow_ns(trace: Trace, rows: Rows) -> Floats:
    """What products need on matrix units, at TF32's rate where the device has it; what they took
    if that is not known, or their format is not far from it."""
    ops, known, formats = trace.device_ops, roofs(trace), precision_of_device_ops(trace)
    assert ops is not None
    took = ops["duration_ns"][rows].astype(np.float64)
    narrow = (known.compute.get(name) for name in ("tf32", "bf16", "fp16")) if known else ()
    best = next((roof for roof in narrow if roof is not None), None)
    if known is None or known.memory is None or best is None:
        return took
    limits = needed_limits(trace)
    moving = limits.bytes[rows] / (known.memory.per_s * MEMORY_REACHED) * 1e9
    pairs = zip(formats.precision[rows].tolist(), formats.matrix_units[rows].tolist(), strict=True)
    peaks = [known.compute.get(peak_type(*pair, matrix=True) or "") for pair in pairs]
    rate = np.array([np.nan if peak is None else peak.per_s / best.per_s for peak in peaks])
    rate = np.where(rate <= 1 / FAR_RATIO, rate, np.nan)
    needs = np.maximum(limits.at_limit_ns[rows] * rate, np.maximum(moving, KERNEL_START_NS))
    return np.where(np.isnan(needs), took, np.minimum(needs, took))


def _is_product(of: LaunchedCall) -> bool:
    cost = cost_of(of.call)
    return cost is not None and cost.matrix and depthwise_window(of.call) is None
