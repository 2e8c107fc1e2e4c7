"""How long one launch takes that does the work of several.

A launch that leaves most of the device empty has room for others beside it. One that fills the
device has none: together they take as long as one after the other, but for what they all read
(the weights of a layer), which one launch reads once.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.costs import cost_of
from pinchpoint.analysis.limits.roofs import spec_of
from pinchpoint.analysis.replay.changes import MergeDeviceOps
from pinchpoint.analysis.replay.least_durations import best_peak_flop_per_s
from pinchpoint.analysis.tables.kernels import blocks_of_device_ops
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.hardware.specs import DeviceSpec
from pinchpoint.trace import Trace, once_per_trace

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

KERNEL_START_NS = 1_500  # of every launch: an empty kernel lasts 1 to 2 µs on an A100 or H100

_SHARED_INPUT = {  # position of the weights, which do not grow with the batch
    "aten::mm": 1, "aten::addmm": 2, "aten::linear": 1, "aten::convolution": 1,
    "aten::_convolution": 1, "aten::cudnn_convolution": 1, "aten::embedding": 0,
}  # fmt: skip


def merged_ratio(trace: Trace, change: MergeDeviceOps) -> Floats:
    """Time of one launch for each group 0..n-1 over the time that its launches took.

    Never less than the longest launch of the group, or than the bytes of its copies at the best
    rate among them; of launches with weights of their own, never less than their roofline.
    """
    ops = trace.device_ops
    assert ops is not None
    rows, group, own_weights = change.device_ops, change.group, change.own_weights
    took = ops["duration_ns"][rows].astype(np.float64)
    together = np.bincount(group, took)
    working = np.maximum(took - KERNEL_START_NS, 0)
    longest, shared = np.zeros((2, len(together)))
    np.maximum.at(longest, group, took)
    grows = _fill_ratio(trace) if own_weights else grows_ratio(trace)
    if own_weights:
        longest = np.maximum(longest, np.bincount(group, _at_the_peaks_ns(trace)[rows]))
    else:
        np.maximum.at(shared, group, working * (1 - _not_shared_ratio(trace)[rows]))
    more = KERNEL_START_NS + shared + np.bincount(group, working * grows[rows])
    moved = ops.filled("bytes", 0)[rows].astype(np.float64)
    rate = np.zeros(len(together))
    np.maximum.at(rate, group, moved / np.maximum(took, 1.0))
    copying = np.divide(
        np.bincount(group, moved), rate, out=np.zeros(len(together)), where=rate > 0
    )
    merged = np.maximum(longest, np.where(rate > 0, copying, more))
    ratio: Floats = np.minimum(merged / np.maximum(together, 1.0), 1.0)
    return ratio


@once_per_trace
def grows_ratio(trace: Trace) -> Floats:
    """Of each device operation, the share of its time that each further one like it adds.

    1 where it fills the device and shares nothing, or where its grid or the device is not known.
    """
    ratio: Floats = _not_shared_ratio(trace) * _fill_ratio(trace)
    return ratio


def _fill_ratio(trace: Trace) -> Floats:
    """Share of the device's multiprocessors that each operation has blocks for; 1: not known."""
    blocks, spec = blocks_of_device_ops(trace), spec_of(trace)
    if spec is None or spec.multiprocessors is None:
        return np.ones(len(blocks))
    ratio: Floats = np.where(blocks > 0, np.minimum(blocks / spec.multiprocessors, 1.0), 1.0)
    return ratio


@once_per_trace
def _at_the_peaks_ns(trace: Trace) -> Floats:
    """Least time of each operation for its FLOPs and all its bytes: weights of many launches are
    in no cache. At most what it took; 0 where the work is not known."""
    ops, spec, calls = trace.device_ops, spec_of(trace), launched_calls(trace)
    assert ops is not None
    took = ops["duration_ns"].astype(np.float64)
    if spec is None:
        return np.zeros(len(took))
    needs = np.nan_to_num(calls.numbers(_needed_ns(spec)))
    together = np.bincount(calls.operator, took)[calls.operator]
    least: Floats = np.minimum(needs * took / np.maximum(together, 1.0), took)
    return least


def _needed_ns(spec: DeviceSpec) -> Callable[[LaunchedCall], float | None]:
    peak, rate = best_peak_flop_per_s(spec), spec.memory_bytes_per_s

    def time_ns(of: LaunchedCall) -> float | None:
        cost = cost_of(of.call)
        if cost is None or not cost.matrix:
            return None
        computing = cost.flops / peak if peak and cost.flops else 0.0
        moving = cost.bytes / rate if rate and cost.bytes and of.call.dtypes else 0.0
        return 1e9 * max(computing, moving)

    return time_ns


def _not_shared_ratio(trace: Trace) -> Floats:
    """Of each device operation, the share of its time that is not spent on reading weights."""
    spec, calls = spec_of(trace), launched_calls(trace)
    if spec is None:
        return np.ones(len(calls.which))
    return np.nan_to_num(calls.numbers(_own_ratio(spec)), nan=1.0)


def shared_bytes(of: LaunchedCall) -> int | None:
    """Bytes of the weights that a call reads; None where it has none, or types are not recorded."""
    at = _SHARED_INPUT.get(of.call.name)
    return of.call.bytes(at) if at is not None and of.call.dtypes else None


def _own_ratio(spec: DeviceSpec) -> Callable[[LaunchedCall], float | None]:
    """Share of a call's time that each further call adds.

    Where moving bytes takes the time, the weights are moved once for all; computing adds up.
    """
    peak, rate = best_peak_flop_per_s(spec), spec.memory_bytes_per_s

    def ratio(of: LaunchedCall) -> float | None:
        cost, shared = cost_of(of.call), shared_bytes(of)
        if cost is None or shared is None or not cost.bytes or not rate:
            return None
        moving = cost.bytes / rate
        computing = cost.flops / peak if peak and cost.flops else moving
        return min(max(1 - shared / cost.bytes, computing / moving), 1.0)

    return ratio
