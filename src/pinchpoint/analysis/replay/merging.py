"""How long one launch takes that does the work of several.

A launch that leaves most of the device empty has room for others beside it. One that fills the
device has none: together they take as long as one after the other, but for what they all read
(the weights of a layer), which one launch reads once.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.costs import cost_of
from pinchpoint.analysis.kernels import blocks_of_device_ops
from pinchpoint.analysis.launched_calls import LaunchedCall, launched_calls
from pinchpoint.analysis.replay.limits import best_peak_flop_per_s
from pinchpoint.analysis.roofs import spec_of
from pinchpoint.hardware.specs import DeviceSpec
from pinchpoint.trace import Trace, once_per_trace

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

KERNEL_START_NS = 1_500  # of every launch: an empty kernel lasts 1 to 2 µs on an A100 or H100

_SHARED_INPUT = {  # position of the weights, which do not grow with the batch
    "aten::mm": 1, "aten::addmm": 2, "aten::linear": 1, "aten::convolution": 1,
    "aten::_convolution": 1, "aten::cudnn_convolution": 1, "aten::embedding": 0,
}  # fmt: skip


def merged_ratio(trace: Trace, rows: Rows, group: NDArray[np.int64]) -> Floats:
    """Time of one launch for each group 0..n-1 over the time that its launches took.

    ``rows`` are device operations. Never less than the longest launch of the group, or than the
    bytes of its copies at the best rate among them.
    """
    ops = trace.device_ops
    assert ops is not None
    took = ops["duration_ns"][rows].astype(np.float64)
    together = np.bincount(group, took)
    longest = np.zeros(len(together))
    np.maximum.at(longest, group, took)
    more = np.bincount(group, np.maximum(took - KERNEL_START_NS, 0) * grows_ratio(trace)[rows])
    moved = ops.filled("bytes", 0)[rows].astype(np.float64)
    rate = np.zeros(len(together))
    np.maximum.at(rate, group, moved / np.maximum(took, 1.0))
    copying = np.divide(
        np.bincount(group, moved), rate, out=np.zeros(len(together)), where=rate > 0
    )
    merged = np.maximum(longest, np.where(rate > 0, copying, KERNEL_START_NS + more))
    ratio: Floats = np.minimum(merged / np.maximum(together, 1.0), 1.0)
    return ratio


@once_per_trace
def grows_ratio(trace: Trace) -> Floats:
    """Of each device operation, the share of its time that each further one like it adds.

    1 where it fills the device and shares nothing, or where its grid or the device is not known.
    """
    ops, spec = trace.device_ops, spec_of(trace)
    assert ops is not None
    if spec is None or spec.multiprocessors is None:
        return np.ones(len(ops))
    own = np.nan_to_num(launched_calls(trace).numbers(_not_shared_ratio(spec)), nan=1.0)
    blocks = blocks_of_device_ops(trace)
    fill = np.where(blocks > 0, np.minimum(blocks / spec.multiprocessors, 1.0), 1.0)
    ratio: Floats = own * fill
    return ratio


def shared_bytes(of: LaunchedCall) -> int | None:
    """Bytes of the weights that a call reads; None where it has none, or types are not recorded."""
    at = _SHARED_INPUT.get(of.call.name)
    return of.call.bytes(at) if at is not None and of.call.dtypes else None


def _not_shared_ratio(spec: DeviceSpec) -> Callable[[LaunchedCall], float | None]:
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
