"""The least that each device operation can take for the work that it does.

FLOPs and bytes of the launching operator against the data sheet, which no program reaches. What
the caches may serve is not counted. Operations whose work is not known have no limit (0).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.costs import cost_of
from pinchpoint.analysis.device.categories import (
    NO_CATEGORY,
    Category,
    by_distinct,
    category_of_device_ops,
)
from pinchpoint.analysis.device.kernel_names import category_of_kernel_name
from pinchpoint.analysis.limits.roofs import spec_of, sustained_flop_per_s
from pinchpoint.analysis.work.operator_work import operator_work, peak_type
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.hardware.specs import DeviceSpec
from pinchpoint.trace import DeviceKind, Trace, once_per_trace
from pinchpoint.trace.arrays import distinct_rows

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_PRODUCTS = (Category.GEMM, Category.CONVOLUTION, Category.ATTENTION)
_WITH_LESS_RANGE = ("fp8", "fp4", "int8")  # no fix that replay knows changes to these formats
_LINK = (Category.COPY_H2D, Category.COPY_D2H)


@once_per_trace
def limits_ns(trace: Trace) -> tuple[Floats, Floats]:
    """Of each row of ``device_ops`` the time for its FLOPs and for its bytes, at the peaks.

    Each at most what it took. The operations of one operator share its limits by what they took.
    """
    ops, spec = trace.device_ops, spec_of(trace)
    took = np.zeros(0) if ops is None else ops["duration_ns"].astype(np.float64)
    if ops is None or spec is None:
        return np.zeros(len(took)), np.zeros(len(took))
    calls = launched_calls(trace)
    together = np.bincount(calls.operator, took)[calls.operator] if len(took) else took
    share = took / np.maximum(together, 1.0)
    computing = np.nan_to_num(calls.numbers(_computing_ns(spec))) * share
    moving = np.nan_to_num(calls.numbers(_moving_ns(spec))) * share
    over_link = np.isin(category_of_device_ops(trace), _LINK)
    rate, size = spec.pcie_bytes_per_s, ops.filled("bytes", 0).astype(np.float64)
    moving = np.where(over_link, size / rate * 1e9 if rate else 0.0, moving)
    return np.minimum(computing, took), np.minimum(moving, took)


def best_peak_flop_per_s(spec: DeviceSpec) -> float | None:
    """The highest peak that products can reach in a format that training uses."""
    peaks = (v for t, v in spec.peaks_flop_per_s.items() if t not in _WITH_LESS_RANGE)
    return max(peaks, default=None)


def _computing_ns(spec: DeviceSpec) -> Callable[[LaunchedCall], float | None]:
    peak = best_peak_flop_per_s(spec)

    def time_ns(of: LaunchedCall) -> float | None:
        cost = cost_of(of.call)
        if peak is None or cost is None or not cost.matrix or cost.flops is None:
            return None
        return cost.flops / peak * 1e9

    return time_ns


def _moving_ns(spec: DeviceSpec) -> Callable[[LaunchedCall], float | None]:
    rate, cached = spec.memory_bytes_per_s, spec.l2_bytes or 0

    def time_ns(of: LaunchedCall) -> float | None:
        cost = cost_of(of.call)
        if rate is None or cost is None or cost.bytes is None or not of.call.dtypes:
            return None
        return max(cost.bytes - cached, 0) / rate * 1e9

    return time_ns


@once_per_trace
def best_ns(trace: Trace) -> Floats:
    """What the fastest recorded operation with the same kernel, grid and operator call took.

    Where neither grid nor call is known, a kernel's name does not say how much it does.
    """
    ops = trace.device_ops
    if ops is None or not len(ops):
        return np.zeros(0)
    took = ops["duration_ns"].astype(np.float64)
    best = np.full(len(took), np.inf)
    kind = alike(trace)
    np.minimum.at(best, kind, took)
    moves = ops.filled("bytes", 0) > 0  # copies: a rate, not a time
    calls = launched_calls(trace)
    untold = ~ops.known("grid") & (calls.which >= len(calls.calls))
    return np.where(moves | untold, took, best[kind])


@once_per_trace
def sustained_ns(trace: Trace) -> Floats:
    """The time of each row of ``device_ops`` for its FLOPs at the rate that the device's power lets
    products keep up; 0 where that or the work is not known.

    A device that rests between products makes each of them at its highest clock. Nothing of that is
    left once it rests no more.
    """
    ops, host, work, spec = trace.device_ops, trace.host_ops, operator_work(trace), spec_of(trace)
    if ops is None or host is None or spec is None or not len(work.rows):
        return np.zeros(len(ops or ()))
    needed = np.zeros(len(work.rows))  # of an operator, for each nanosecond of its kernels
    flop_per_s = work.flops / np.maximum(work.device_ns, 1) * 1e9
    formats = distinct_rows(work.precision.astype(np.int64), work.on_matrix_units.astype(np.int64))
    for which, (precision, units) in enumerate(formats[0].tolist()):
        dtype = peak_type(precision, units, matrix=True)
        rate = None if dtype is None else sustained_flop_per_s(trace, dtype)
        peak = None if dtype is None else spec.peak_flop_per_s(dtype)
        if rate is None or peak is None:
            continue
        # More than the peak is no work that these kernels did.
        mine = (formats[1] == which) & work.matrix & work.modelled & (flop_per_s <= peak)
        needed[mine] = flop_per_s[mine] / rate
    of_row = np.zeros(len(host))
    of_row[work.rows] = needed
    mine = (ops["kind"] == DeviceKind.KERNEL) & ops.known("host_op")
    by_row = of_row[ops.filled("host_op", 0).astype(np.intp)]
    return np.where(mine, by_row * ops["duration_ns"], 0.0)


@once_per_trace
def alike(trace: Trace) -> NDArray[np.intp]:
    """A number for each row of ``device_ops``, the same for equal work by the same kernel."""
    ops = trace.device_ops
    assert ops is not None
    return distinct_rows(
        ops["name"].astype(np.int64),
        ops.filled("grid", -1).astype(np.int64),
        launched_calls(trace).which.astype(np.int64),
    )[1]


@once_per_trace
def products(trace: Trace) -> Mask:
    """Rows of ``device_ops`` that multiply matrices; not what else their operator launches."""
    ops = trace.device_ops
    if ops is None:
        return np.zeros(0, np.bool_)
    by_name = by_distinct(trace.names, ops["name"], category_of_kernel_name)
    either = np.isin(by_name, (NO_CATEGORY, Category.OTHER, *_PRODUCTS))
    result: Mask = either & np.isin(category_of_device_ops(trace), _PRODUCTS)
    return result


def done_elsewhere(trace: Trace, dropped: Mask) -> Mask:
    """Dropped operations whose work is done by others that stay, or that are no products.

    A product stays done if another launch of its operator stays (a search tries several kernels),
    or if as many like it stay as go (what is computed again).
    """
    calls = launched_calls(trace)
    none = int(calls.operator.max(initial=0)) + 1
    stays = np.bincount(calls.operator, ~dropped, none)[calls.operator] > 0
    stays &= calls.operator < (0 if trace.host_ops is None else len(trace.host_ops))
    kind = np.where(calls.which < len(calls.calls), calls.which, len(calls.calls) + alike(trace))
    kept, gone = np.bincount(kind, ~dropped), np.bincount(kind, dropped)
    result: Mask = dropped & (~products(trace) | stays | (kept >= gone)[kind])
    return result
