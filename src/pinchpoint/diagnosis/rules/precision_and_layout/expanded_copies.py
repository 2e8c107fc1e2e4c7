"""A tensor is written out several times over before it is used.

## What it looks for
Copies in each step whose source is an expanded tensor: a dimension of stride 0 says that the same
values are read for each of its places and written to all of them (`expand(...).reshape(...)`,
`repeat`, `repeat_interleave`), to twice the size at least. Keys and values of grouped attention
heads are the usual case. Copies that a product makes of expanded operands by itself are not meant:
nobody asked for them. Shapes and strides have to be recorded; copies beside which the device
would work as long anyway gain nothing, and are no finding.

## Why it matters
Writing the copies takes the memory's whole bandwidth, and reading them again as much once more. In
decoding that is most of what a token costs, since it touches the whole cache.

## How to fix it
Let the operator broadcast: `enable_gqa=True` of `scaled_dot_product_attention`, `matmul` and
elementwise operators with a dimension of size 1, or fold the repeated heads into the queries.

## When to ignore it
Where each copy is then changed by itself.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.input_arguments import Shape, elements
from pinchpoint.analysis.host.source_lines import places
from pinchpoint.analysis.host.timeline import NO_ROW
from pinchpoint.analysis.replay import DropDeviceOps
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_AND_STRIDES
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("device_ops", "host_ops"), record=SHAPES_AND_STRIDES, advice=NO_HINT)

FEWEST_TIMES = 2  # the result against what lies in memory
LARGE_BYTES = 8 << 20  # of a result: 3 µs of an H100; less is a matter of latency


def check(trace: Trace) -> Iterator[Found]:
    """Copies of expanded tensors."""
    host, calls = trace.host_ops, launched_calls(trace)
    if host is None or not host.known("strides").any():
        raise NotChecked("strides were not recorded")
    wanted = calls.where(_is_expanded) & _asked_for(trace)
    work = device_work(trace, wanted, "copies of expanded tensors")
    if work is None:
        return
    written = calls.numbers(lambda of: float(of.call.bytes(0)))[work.rows]
    times = calls.numbers(_times)[work.rows]
    usual = float(np.median(times))
    yield Found(
        summary=(
            f"{work.count:.0f} copies a step write a tensor out {usual:.0f} times over,"
            f" {per_step(trace, int(written.sum())) / 1e9:.3g} GB and"
            f" {duration(work.ns_per_step)} of each recorded step"
        ),
        evidence=(
            Evidence("written", round(per_step(trace, int(written.sum()))), "bytes per step"),
            Evidence("times that each value is written", round(usual, 2), "count"),
            *work.evidence,
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(DropDeviceOps(work.rows),),
        location=work.place,
        fix="Let the operator that reads it broadcast, instead of writing it out",
        hint="F.scaled_dot_product_attention(q, k, v, enable_gqa=True)  # for keys and values",
        confidence="medium",
    )


# Operators of a program that write out what was expanded.
_WRITES_OUT = (
    "aten::reshape", "aten::contiguous", "aten::clone", "aten::repeat", "aten::repeat_interleave",
    "aten::flatten", "aten::tile", "aten::copy_", "aten::view", "aten::to", "aten::_reshape_copy",
)  # fmt: skip


def _asked_for(trace: Trace) -> Mask:
    """Device operations whose outermost operator is one that copies."""
    ops, host = trace.device_ops, trace.host_ops
    assert ops is not None
    assert host is not None
    called = places(trace).operator[ops.filled("host_op", NO_ROW)]
    copies = np.array([name in _WRITES_OUT for name in trace.names] + [False], np.bool_)
    found: Mask = copies[called]
    return found


def _is_expanded(of: LaunchedCall) -> bool:
    if of.call.name != "aten::copy_" or of.call.bytes(0) < LARGE_BYTES:
        return False
    return (_times(of) or 0) >= FEWEST_TIMES


def _times(of: LaunchedCall) -> float | None:
    """How often each value of the source is written; None where strides were not recorded."""
    shape, target, source = of.call.shape(1), of.stride(0), of.stride(1)
    if shape is None or target is None or source is None or of.call.shape(0) != shape:
        return None
    if len(source) != len(shape) or len(target) != len(shape):
        return None
    there, here = _stored(shape, target), _stored(shape, source)
    return there / here if here else None


def _stored(shape: Shape, stride: Shape) -> int:
    """Elements that lie in memory."""
    return elements(tuple(n for n, step in zip(shape, stride, strict=True) if step))
