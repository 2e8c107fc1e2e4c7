"""A depthwise convolution with a large window computes every product of it.

## What it looks for
Convolutions with one channel in each group and a window of 121 elements or more, whose kernels take
three times what a Fourier transform there and back needs, or more: eight passes over the input
(padded by the window) and the output at the memory's attainable bandwidth. Of a depthwise window,
matrix units have nothing to multiply (all but a diagonal of the matrix would be zeros), so that no
narrower type makes it quick: it is left out where other rules tell of matrix units. Not checked
without shapes of inputs.

## Why it matters
A window of 45 × 45 is 2025 multiplications and additions for each pixel, in a kernel written for
3 × 3. As two lines it is 90; by Fourier transforms, some tens whatever its size.

## How to fix it
A window that is a column times a row, as a Gaussian or a mean is, is two convolutions, one with
each. Any other: `torch.fft.rfft2` of both, padded to a fast length, one product, and `irfft2`. A
blur may also work on a smaller picture, which is enlarged afterwards.

## When to ignore it
Where the window is trained, and the step is a training step: the gradients go the same way, and
have to be written, too.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.causal.limits import KERNEL_START_NS, MEMORY_REACHED
from pinchpoint.analysis.costs.convolution import depthwise_window
from pinchpoint.analysis.host.input_arguments import elements
from pinchpoint.analysis.limits.roofs import roofs
from pinchpoint.analysis.mean.what_if import step_base_ns
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import SHAPES_OF_INPUTS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=SHAPES_OF_INPUTS,
    advice=NO_HINT,
)

# Below it a direct kernel is bound by memory: 2 × 121 operations for 8 bytes of float32 are beyond
# the 14 to 20 a byte that devices of today compute while they read one.
FEWEST_ELEMENTS = 121
PASSES = 8  # a transform reads and writes twice, there and back, of as many numbers
FAR_RATIO = 3.0  # as of slow-operator: limits are right within a factor of two
LEAST_STEP_RATIO = 0.05  # of the step, as where the table of operators knows another way


def check(trace: Trace) -> Iterator[Found | Small]:
    """All of them, as one finding."""
    ops, host, known = trace.device_ops, trace.host_ops, roofs(trace)
    if host is None or ops is None or not host.known("shapes").any():
        raise NotChecked("the recording has no shapes of inputs")
    mine = launched_calls(trace).where(_is_large) & device_ops_in_steps(trace)
    if not mine.any():
        return
    if known is None or known.memory is None:
        raise NotChecked("the bandwidth of the device's memory is not known")
    moved = launched_calls(trace).numbers(_transform_bytes)
    needs = np.maximum(moved / (known.memory.per_s * MEMORY_REACHED) * 1e9, KERNEL_START_NS)
    mine &= ops["duration_ns"] >= FAR_RATIO * needs  # NaN, where sizes are not known, is not
    work = device_work(trace, mine, "its device time")
    base_ns = step_base_ns(trace)
    if work is None or not base_ns:
        return
    took, left = ops["duration_ns"][work.rows], needs[work.rows]
    won_ns = work.ns_per_step - per_step(trace, round(float(left.sum())))
    if won_ns < LEAST_STEP_RATIO * base_ns:
        yield Small(won_ns / base_ns, LEAST_STEP_RATIO)
        return
    calls = launched_calls(trace)
    window = depthwise_window(calls.calls[calls.which[work.rows[took.argmax()]]].call) or ()
    size = " × ".join(map(str, window))
    where = f" in {work.place}" if work.place else ""
    yield Found(
        summary=(
            f"Depthwise convolutions with a window of {size} compute {elements(window):,} products"
            f" for each element{where}: {duration(work.ns_per_step)} of the device's time a step,"
            " on no matrix units"
        ),
        evidence=(
            *work.evidence,
            Evidence("products for each element", elements(window), ""),
            Evidence("of two lines", sum(window), ""),
            Evidence(
                "a Fourier transform there and back",
                round(per_step(trace, round(float(left.sum())))),
                "ns per step",
            ),
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(
            ScaleDeviceOps(
                work.rows,
                np.minimum(left / took, 1.0),
                flops_left=min(float((left / took).max()), 1.0),
            ),
        ),
        location=work.place,
        fix=(
            "Where the window is a column times a row (a Gaussian, a mean), convolve with one"
            " after the other; any other: multiply Fourier transforms"
        ),
        hint="F.conv2d(F.conv2d(x, row, groups=channels), column, groups=channels)",
        confidence="medium",
    )


def _is_large(of: LaunchedCall) -> bool:
    window = depthwise_window(of.call)
    return window is not None and elements(window) >= FEWEST_ELEMENTS and min(window) > 1


def _transform_bytes(of: LaunchedCall) -> float | None:
    """What all passes move, of what is padded by the window."""
    x, window = of.call.shape(0), depthwise_window(of.call)
    if x is None or window is None:
        return None
    padded = (size + more for size, more in zip(x[2:], window, strict=True))
    return float(PASSES * x[0] * x[1] * elements(tuple(padded)) * of.call.element_bytes(0))
