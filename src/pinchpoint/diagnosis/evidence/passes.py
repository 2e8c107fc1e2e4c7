"""How device operations compare with passes over what their operators read."""

import numpy as np

from pinchpoint.analysis.causal.limits import KERNEL_START_NS, MEMORY_REACHED
from pinchpoint.analysis.limits.roofs import roofs
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Floats, Mask


def passes(trace: Trace, mine: Mask) -> float | None:
    """How many times these operations could pass over what their operators read."""
    needs = pass_ns(trace, mine)
    ops = trace.device_ops
    assert ops is not None
    return float(ops["duration_ns"][mine].sum()) / float(needs.sum()) if needs.all() else None


def pass_ns(trace: Trace, mine: Mask) -> Floats:
    """One pass over the inputs of each operation's call; 0 where that is not known."""
    known = roofs(trace)
    if known is None or known.memory is None:
        return np.zeros(int(mine.sum()))
    read = launched_calls(trace).numbers(_read_bytes)[mine]
    at = read / (known.memory.per_s * MEMORY_REACHED) * 1e9
    return np.where(np.isnan(read), 0.0, np.maximum(at, KERNEL_START_NS))


def _read_bytes(of: LaunchedCall) -> float | None:
    """What a call reads; None of sparse tensors, whose shape is no size: they have no strides."""
    tensors = of.call.tensors()
    if of.strides and any(of.stride(i) is None for i in tensors):
        return None
    return sum(of.call.bytes(i) for i in tensors) or None
