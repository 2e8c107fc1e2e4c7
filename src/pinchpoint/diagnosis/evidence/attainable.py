"""How long device work takes when it is done well: what rules predict kernels with.

The peaks come from the device's data sheet. No program reaches them; the shares that good
kernels reach were measured on an H100 80GB HBM3 with CUDA 13 and torch 2.11, and are close to
what other data-centre devices are reported to reach.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.costs import cost_of
from pinchpoint.analysis.limits.roofs import spec_of
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.replay.merging import shared_bytes
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.hardware.specs import DeviceSpec
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Rows

Estimate = Callable[[LaunchedCall], float | None]

# Products of 137 GFLOP and more reach 0.80 to 0.89 of the bf16 peak. In TF32 it depends on which
# operand is transposed: 0.85 forward, 0.72 for gradients of inputs, 0.53 for those of weights.
PRODUCT_REACHED = {"bf16": 0.85, "fp16": 0.85, "tf32": 0.67, "fp32": 0.77}
# What a product takes beyond that, whatever its size: from 4.8 GFLOP (11 µs) to 137 GFLOP (172 µs).
PRODUCT_START_NS = 7_000
STREAM_REACHED = 0.9  # of the memory's bandwidth, by elementwise kernels on large dense tensors
# Causal attention of cuDNN in bf16, heads of 64, 1024 tokens: 0.28 forward, 0.26 backward; longer
# sequences fill the chip better. FlashAttention-2 is published with 0.35 on Hopper, 0.5 on Ampere.
ATTENTION_REACHED = 0.35
ATTENTION_REACHED_WHEN_SHORT = 0.27  # between the two measured shares of 0.28 and 0.26, above
# Twice the length at which those were measured; from here on the published share.
SHORT_SEQUENCE = 2048
ATTENTION_REACHED_ON_AMPERE = 0.5  # as FlashAttention-2 is published with there
ATTENTION_REACHED_IN_FP32 = 0.43  # of the vector units' peak, by memory-efficient attention


@dataclass(frozen=True)
class Attainable:
    """Times in ns on one device; None where the data sheet or the recording says too little."""

    spec: DeviceSpec

    def product_ns(self, of: LaunchedCall, dtype: str) -> float | None:
        """A matrix product or convolution computed in ``dtype`` on its best units."""
        cost, peak = cost_of(of.call), self.spec.peak_flop_per_s(dtype)
        if cost is None or cost.flops is None or not cost.matrix or not peak:
            return None
        computing = cost.flops / (peak * PRODUCT_REACHED.get(dtype, 1.0)) * 1e9
        return PRODUCT_START_NS + max(computing, self.stream_ns(cost.bytes or 0) or 0.0)

    def weights_ns(self, of: LaunchedCall) -> float | None:
        """Reading the weights of a layer, as a product of few rows does."""
        size = shared_bytes(of)
        moving = None if size is None else self.stream_ns(size)
        return None if moving is None else PRODUCT_START_NS + moving

    def stream_ns(self, size: float) -> float | None:
        """Reading and writing ``size`` bytes of device memory."""
        rate = self.spec.memory_bytes_per_s
        return size / (rate * STREAM_REACHED) * 1e9 if rate else None

    def attention_ns(self, flops: float, length: int, dtype: str = "bf16") -> float | None:
        """Fused attention of so many FLOPs, those that the mask spares left out; over a length."""
        peak = self.spec.peak_flop_per_s(dtype)
        reached = ATTENTION_REACHED if length >= SHORT_SEQUENCE else ATTENTION_REACHED_WHEN_SHORT
        if dtype == "fp32":
            reached = ATTENTION_REACHED_IN_FP32
        elif self.spec.architecture == "Ampere":
            reached = ATTENTION_REACHED_ON_AMPERE
        return flops / (peak * reached) * 1e9 if peak else None


def attainable(trace: Trace) -> Attainable | None:
    """For the device of a trace; None if nothing is known of it."""
    spec = spec_of(trace)
    return None if spec is None else Attainable(spec)


def scaled(
    trace: Trace,
    rows: Rows,
    estimate: Estimate | None,
    usual: float,
    *,
    flops_left: float = 1.0,
    bytes_left: float = 1.0,
) -> ScaleDeviceOps:
    """The device operations ``rows`` with the times that ``estimate`` gives for their calls.

    All launches of an operator together take the estimate, if that is less than they took.
    Operations without one take the share that the others keep, or ``usual`` if there are none.
    ``flops_left`` and ``bytes_left`` are shares of their work; see :class:`ScaleDeviceOps`.
    """
    ops, calls = trace.device_ops, launched_calls(trace)
    assert ops is not None
    took = ops["duration_ns"][rows].astype(np.float64)
    operators, member = np.unique(calls.operator[rows], return_inverse=True)
    before = np.bincount(member, took, len(operators))
    wanted = np.full(len(operators), np.nan)
    if estimate is not None:
        wanted[member] = calls.numbers(estimate)[rows]
    known = ~np.isnan(wanted)
    if not before[known].sum():
        return ScaleDeviceOps(rows, usual, flops_left, bytes_left)
    after = np.minimum(wanted[known], before[known]).sum()
    return ScaleDeviceOps(rows, float(after / before[known].sum()), flops_left, bytes_left)
