"""Convolutions convert their layout back and forth.

## What it looks for
Kernels that turn (batch, channel, height, width) into channels-last order and back, launched by
convolutions, and batch normalisation in the slower order beside them. The conversions are the
evidence: an order of dimensions by itself is no finding, since many convolutions are as fast in
either. Copies that the program makes to change a layout are non-contiguous-access. Convolutions
over one dimension have no such order to keep, and are left out: turned into two-dimensional ones in
channels-last order, two layers of 256 channels trained 14 % slower on an H200.

On CPUs oneDNN turns layouts inside its convolutions, and the strides of their operands, recorded
with `record_shapes=True`, say which order they had. Inference in the other order is a finding
there: each of five networks was faster in channels-last order. Training is not: of the same five it
took 0.6 to 1.1 times as long, so that it is not checked, and the knob tells.

## Why it matters
The tensor cores want channels last. Given the other order, the library converts each operand
before and each result after every convolution, which reads and writes all activations once more;
and batch normalisation sums over data that lies far apart.

## How to fix it
`model = model.to(memory_format=torch.channels_last)` and the same for the input. Everything in
between keeps that order by itself, as long as no operation asks for another.

## When to ignore it
Convolutions with few channels, which do not use the tensor cores. On CPUs, where another operation
in between asks for the other order.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.input_arguments import Shape
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.replay import Change, ScaleDeviceOps, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import per_step, rows_in_steps
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.work.one_dimension import over_one_dimension
from pinchpoint.analysis.work.pointwise_chains import (
    LaunchedCall,
    distinct_calls,
    launched_calls,
)
from pinchpoint.diagnosis.evidence.attainable import Attainable, attainable, scaled
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import CPU_AND_DEVICE, DEVICE, SHAPES_AND_STRIDES, Record
from pinchpoint.diagnosis.rule import NO_KNOB, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named

RULE = Rule(
    needs=(),
    record=DEVICE,
    knobs=("channels_last",),
    advice=NO_KNOB,
    confirm="pinchpoint try --knob channels_last -- python train.py",
)

PASSES_FORWARD = 3  # of batch normalisation over the activations: read, read, write
PASSES_BACKWARD = 5  # read two twice, write one
# Channels-last batch normalisation of torch reaches half of the bandwidth that elementwise
# kernels reach (an H100, 51 MB of bf16); the one for the other order reached a fifth.
NORMALISATION_REACHED = 0.55

# Of the step in convolutions on a CPU: a tenth of less is no gain that could be seen.
LEAST_RATIO = 0.3
_FORWARD, _BACKWARD = "aten::convolution", "aten::convolution_backward"  # not what they call
_BY_ONEDNN = "aten::mkldnn_convolution"
# Five networks (plain, bottlenecks, depthwise, pooled) in float32, on two cores of a Xeon with AMX:
# inference in channels-last order took 0.38 to 0.87 of the CPU time, so 0.8 to 0.4 (once 0.1) of
# that of convolutions. By oneDNN's own log reorders were half of it, 11 in a pass and then 4. Of a
# sixth, with attention between its convolutions, the step took 0.84 to 0.91: 0.73 to 0.85.
LEFT_RATIO, LEFT_AT_BEST_RATIO = 0.85, 0.5
_MEASURED_TYPE = "float"

_CONVERSIONS = ("nchwToNhwc", "nhwcToNchw")


def check(trace: Trace) -> Iterator[Found | Small]:
    """Layout conversions around convolutions."""
    ops = trace.device_ops
    if computes_on_cpu(trace):
        yield from _on_cpu(trace)
        return
    if ops is None or not len(ops):
        raise NotChecked("the recording has no device ops", CPU_AND_DEVICE)
    converting = rows_named(trace, ops, lambda name: any(c in name for c in _CONVERSIONS))
    converting &= ~over_one_dimension(trace)
    work = device_work(trace, converting, "layout conversions around convolutions")
    if work is None:
        return
    norms = device_work(trace, _channels_first_norms(trace), "batch normalisation in this layout")
    # Their launches are short calls inside the library: only their time on the device counts.
    changes: tuple[Change, ...] = (ScaleDeviceOps(work.rows, 0.0, 0.0, 0.0),)
    evidence, well = work.evidence, attainable(trace)
    if norms is not None and well is not None:
        changes += (scaled(trace, norms.rows, lambda of: _channels_last_ns(well, of), 1.0),)
        evidence += (Evidence(norms.evidence[0].what, norms.ns_per_step, "ns per step"),)
    yield Found(
        summary=(
            f"{work.count:.0f} times a step, a convolution's operands or result are turned from one"
            f" layout into the other, {duration(work.ns_per_step)} of each recorded step"
        ),
        evidence=evidence,
        cost_ns_per_step=work.ns_per_step,
        changes=changes,
        location=work.place,
        fix="Keep model and input in channels-last order",
        hint="model = model.to(memory_format=torch.channels_last)  # and the input as well",
    )


def _on_cpu(trace: Trace) -> Iterator[Found | Small]:
    """Inference with oneDNN on operands in the slower order. Raises NotChecked where convolutions
    matter, and it is not known whether their layout does."""
    host, step_ns = trace.host_ops, steps(trace).typical_ns
    assert host is not None
    mine = rows_in_steps(trace, host)
    forward = mine & rows_named(trace, host, lambda name: name == _FORWARD)
    backward = mine & rows_named(trace, host, lambda name: name == _BACKWARD)
    took = per_step(trace, int(host["duration_ns"][forward | backward].sum()))
    if not step_ns or took < LEAST_RATIO * step_ns:
        return
    comparison = Record("a comparison: pinchpoint try --knob channels_last -- COMMAND")
    if backward.any():
        raise NotChecked(
            "the CPU's library turns layouts inside its convolutions, and trains in either order"
            " faster or slower",
            comparison,
        )
    rows = np.flatnonzero(forward)
    calls, which = distinct_calls(trace, rows)
    if not any(of.stride(0) for of in calls):
        raise NotChecked(
            "the strides of the convolutions' inputs are not recorded", SHAPES_AND_STRIDES
        )
    if not (mine & rows_named(trace, host, lambda name: name == _BY_ONEDNN)).any():
        raise NotChecked("the convolutions are not oneDNN's, whose layouts are known", comparison)
    slower = np.array([_channels_first(of.call.shape(0), of.stride(0)) for of in calls], np.bool_)
    if any(
        of.call.dtype(0) != _MEASURED_TYPE for of, one in zip(calls, slower, strict=True) if one
    ):
        raise NotChecked("what layouts cost was measured in float32 alone", comparison)
    forward[rows] = slower[which]
    spans = host_spans(trace, forward, "convolutions in channels-first order")
    if spans is None:
        return
    if spans.ns_per_step < LEAST_RATIO * step_ns:
        yield Small(spans.ns_per_step / step_ns, LEAST_RATIO)
        return
    yield Found(
        summary=(
            f"{spans.count:.3g} × a step a convolution gets operands in channels-first order, which"
            f" the CPU's library turns, and its result, in {duration(spans.ns_per_step)} of each"
        ),
        evidence=spans.evidence,
        cost_ns_per_step=spans.ns_per_step,
        changes=(ScaleHostSpans(spans.rows, LEFT_RATIO),),
        at_best=(ScaleHostSpans(spans.rows, LEFT_AT_BEST_RATIO),),
        location=spans.place,
        fix="Keep model and input in channels-last order",
        hint="model = model.to(memory_format=torch.channels_last)  # and the input as well",
        confidence="medium",
    )


def _channels_first_norms(trace: Trace) -> NDArray[np.bool_]:
    return launched_calls(trace).where(
        lambda of: "batch_norm" in of.call.name and _channels_first(of.call.shape(0), of.stride(0))
    )


def _channels_first(shape: Shape | None, stride: Shape | None) -> bool:
    """Whether the channel varies slowest in memory; of one channel nobody can tell."""
    if shape is None or stride is None or len(shape) < 4 or len(stride) != len(shape):
        return False
    return stride[1] != 1 and shape[1] > 1


def _channels_last_ns(well: Attainable, of: LaunchedCall) -> float | None:
    passes = PASSES_BACKWARD if "backward" in of.call.name else PASSES_FORWARD
    streaming = well.stream_ns(passes * of.call.bytes(0))
    return None if streaming is None else streaming / NORMALISATION_REACHED
