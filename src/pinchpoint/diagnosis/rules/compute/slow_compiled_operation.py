"""An operation of a compiled program takes many times what its work needs on this device.

## What it looks for
Operations of a program that XLA compiled, on a device whose peak rates are known, with the FLOPs
and bytes that XLA counted for each run. Named is one that takes three times as long as its bytes
need at the device's memory bandwidth, and six times as long as its FLOPs need at the bfloat16 peak,
where the step would be 15 % shorter at that limit. Waits (copies, collectives, infeed) are others.

## Why it matters
A TPU's one line of operations is all that the device does: what takes long there is the step.
Products of odd shapes, gathers and scatters, loops over time and layouts that have to be turned
leave most of the device unused.

## How to fix it
Look at the operation at the line that it comes from: shapes that are multiples of 128 (8 on the
other side), a larger batch, bfloat16, a scan that does more in each iteration, a gather in place of
a loop, or a kernel of your own (Pallas).

## When to ignore it
Float32 products at the highest precision take six passes. Bytes that XLA counts may come from
memory on the chip.
"""

import re
from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.finding import Evidence, Found, Location, Small, at_most
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import MATERIAL_STEP_RATIO, NO_HINT, NotChecked, Rule
from pinchpoint.hardware import find_spec
from pinchpoint.regex import regex
from pinchpoint.trace import DeviceKind, Table, Trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("device_ops",), record=CPU_AND_DEVICE, residual=True, advice=NO_HINT)

FAR_RATIO = 3.0  # as of slow-operator: limits are right within a factor of two
PASSES = 6  # of bfloat16 that XLA takes at most for one product of float32
LEAST_GAIN_RATIO = 0.15  # of the step: no other way is known, only much is worth the search
MOST_TOLD = 3  # as of slow-operator: the others wait for the next look
_PLACE = regex(r"(?P<file>[^,\n]+):(?P<line>\d{1,7})(,|$)")
_WAITING = regex(r"^(infeed|outfeed|recv|send|copy-(start|done)|async-)", re.IGNORECASE)


def check(trace: Trace) -> Iterator[Found | Small]:
    """Operations far from the limits of the device, most gain first."""
    ops = trace.compiled_ops
    if ops is None or not len(ops) or len(trace.api_calls or ()) or not trace.devices:
        return
    spec = find_spec(trace.devices[0].name)
    if spec is None or spec.memory_bytes_per_s is None:
        raise NotChecked("the peak rates of this device are not known")
    if steps(trace).how == "none":
        raise NotChecked("no steps were found")
    mine = ops.known("device") & (ops.filled("device", -1) == trace.devices[0].number)
    mine &= (judged_steps(trace).step_of(ops["start_ns"]) >= 0) & _computes(trace, ops)
    rates = spec.memory_bytes_per_s, spec.peak_flop_per_s("bf16")
    found = [
        _far(trace, ops, mine & (ops["op"] == name), *rates) for name in _long(trace, ops, mine)
    ]
    yield from at_most(MOST_TOLD, sorted(found, key=_cost_ns, reverse=True))


def _cost_ns(said: Found | Small | None) -> int:
    return said.cost_ns_per_step or 0 if isinstance(said, Found) else 0


def _long(trace: Trace, ops: Table, mine: Mask) -> list[int]:
    """Names of operations that take enough of a step; programs have thousands of others."""
    total = np.bincount(ops["op"][mine], ops["duration_ns"][mine])
    least = max(MATERIAL_STEP_RATIO * (steps(trace).typical_ns or 0), 1)
    return [n for n in np.flatnonzero(total).tolist() if per_step(trace, total[n]) >= least]


def _computes(trace: Trace, ops: Table) -> Mask:
    """Operations that are no copies, collectives or waits for the host."""
    device = trace.device_ops
    assert device is not None
    waits = [n for n, name in enumerate(trace.names) if _WAITING.match(name)]
    others = device["start_ns"][device["kind"] != DeviceKind.KERNEL]
    result: Mask = ~np.isin(ops["op"], waits) & ~np.isin(ops["start_ns"], others)
    return result


def _far(
    trace: Trace, ops: Table, mine: Mask, bytes_per_s: float, flop_per_s: float | None
) -> Found | Small | None:
    if not (ops.known("bytes")[mine] | ops.known("flops")[mine]).all():
        return None
    took = per_step(trace, int(ops["duration_ns"][mine].sum()))
    moved, done = (
        per_step(trace, float(ops.filled(what, 0)[mine].astype(np.float64).sum()))
        for what in ("bytes", "flops")
    )
    memory_ns = moved / bytes_per_s * 1e9
    product_ns = done / flop_per_s * 1e9 if flop_per_s else 0.0
    limit_ns = max(memory_ns, product_ns)
    far = took >= FAR_RATIO * memory_ns and took >= PASSES * product_ns
    step_ns = steps(trace).typical_ns or 0
    if not far:
        return None
    if took - limit_ns < LEAST_GAIN_RATIO * step_ns:
        return Small((took - limit_ns) / step_ns, LEAST_GAIN_RATIO)
    row = int(np.flatnonzero(mine)[0])
    name, source = trace.text(ops, "op", row), trace.text(ops, "source", row)
    category = trace.text(ops, "category", row)
    what = f"{name} ({category})" if category else str(name)
    where = _PLACE.match(source or "")
    return Found(
        summary=(
            f"{what} takes {duration(took)} of the device's time a step where"
            f" {duration(limit_ns)} would do: {done / took / 1e3:.3g} TFLOP/s and"
            f" {moved / took:.3g} GB/s"
        ),
        evidence=(
            Evidence("time", round(took), "ns per step"),
            Evidence("FLOPs", round(done), "per step"),
            Evidence("bytes", round(moved), "per step"),
            Evidence("runs", round(per_step(trace, int(mine.sum())), 2), "per step"),
        ),
        cost_ns_per_step=round(took),
        saving_ns_per_step=(0, round(took - limit_ns)),
        location=Location(
            file=where["file"] if where else None,
            line=int(where["line"]) if where else None,
            operator=str(name),
        ),
        fix="Look at the shapes and the layout there: multiples of 128, a larger batch, bfloat16,"
        " fewer and larger iterations of a loop",
        confirm="record again after the fix: pinchpoint diagnose RECORDING",
        confidence="low",
    )
