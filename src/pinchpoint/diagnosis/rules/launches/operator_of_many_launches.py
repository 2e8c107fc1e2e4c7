"""One call of an operator launches hundreds of kernels, one after the other.

## What it looks for
Calls of a single operator, each of which launches 64 kernels or more, mostly short ones, that
together are most of what the step launches; and a device that waits for the host in 15 % of the
step or more, without the profiler. The loop is in the library, not in the program: many small
matrices are decomposed or solved one by one, or a sequence is walked step by step. The gain is idle
time between kernels: one that needs what the one before it computed (the next state of a recurrent
layer) does not start earlier for being launched earlier. Optimizers over lists of tensors launch
long kernels, and layers that each launch a few are `launch-bound`.

## Why it matters
Each kernel is shorter than its launch, and the device idles between them. Work that is small for
each item takes as long as its number of launches.

## How to fix it
Use an operator that works on all items at once (a batched or approximate decomposition, a fused
recurrent layer), do the small work on the CPU, or do it less often.

## When to ignore it
Where it is done once in many steps. A device that works all the time gains nothing by fewer
launches: there this is no finding.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.input_arguments import tensor_shapes
from pinchpoint.analysis.replay import GraphLaunches
from pinchpoint.analysis.replay.binding import HELD_UP_RATIO, bound
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step, rows_in_steps
from pinchpoint.diagnosis.evidence.device_work import location_of
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.diagnosis.rules.launches._late_launches import calls_of_many
from pinchpoint.diagnosis.rules.launches._many_launches import SHORT_KERNEL_NS
from pinchpoint.trace import DeviceKind, Trace
from pinchpoint.trace.arrays import Ints, Rows

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=CPU_AND_DEVICE,
    parent="launch-bound",
    advice=NO_HINT,
)

MOSTLY_RATIO = 0.5  # of the step's launches: less is no reason to speak of the operator


def check(trace: Trace) -> Iterator[Found]:
    """Calls of the operator that launches most."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None or bound(trace).host_ratio < HELD_UP_RATIO:
        return
    many = calls_of_many(trace)
    many = many[rows_in_steps(trace, host)[many]]
    if not len(many):
        return
    launched = _launched_by(trace, many)
    if not (launched >= 0).any():  # none of what they launched is a kernel
        return
    which = np.bincount(host["name"][launched[launched >= 0]]).argmax()
    calls = many[host["name"][many] == which]
    kernels = np.flatnonzero(np.isin(launched, calls))
    of_steps = (ops["kind"] == DeviceKind.KERNEL) & device_ops_in_steps(trace)
    took = ops["duration_ns"][kernels]
    if len(kernels) < MOSTLY_RATIO * of_steps.sum() or np.median(took) > SHORT_KERNEL_NS:
        return
    name, spent = trace.names[which], int(host["duration_ns"][calls].sum())
    each, longest = len(kernels) / len(calls), int(calls[host["duration_ns"][calls].argmax()])
    place = location_of(trace, longest)
    yield Found(
        summary=(
            f"One call of {name} launches {each:.0f} kernels{f' in {place}' if place else ''},"
            f" half of them shorter than {np.median(took) / 1e3:.1f} µs"
        ),
        evidence=(
            Evidence("launches of these calls", round(per_step(trace, len(kernels))), "per step"),
            Evidence("calls", round(per_step(trace, len(calls)), 2), "per step"),
            Evidence("time in them, while recorded", round(per_step(trace, spent)), "ns per step"),
            Evidence(
                "longest",
                int(host["duration_ns"][longest]),
                "ns",
                int(host["start_ns"][longest]),
                name,
            ),
            *_items(trace, longest),
        ),
        cost_ns_per_step=None,
        changes=(GraphLaunches(kernels),),
        location=place,
        confidence="medium",
        fix=f"Do this without {name}: an operator for all items at once, on the CPU, or less often",
    )


def _launched_by(trace: Trace, calls: Rows) -> Ints:
    """For each row of ``device_ops`` the one of these calls that launched it, or -1."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    chosen = np.zeros(len(host), np.bool_)
    chosen[calls] = True
    around = np.append(nearest(parents(host), chosen), len(host))
    found: Ints = around[ops.filled("host_op", len(host))]
    return np.where((found < len(host)) & (ops["kind"] == DeviceKind.KERNEL), found, -1)


def _items(trace: Trace, row: int) -> tuple[Evidence, ...]:
    """How many matrices the call was given, where shapes are recorded."""
    host = trace.host_ops
    assert host is not None
    shapes = tensor_shapes(trace.text(host, "shapes", row) or "")
    items = int(np.prod(shapes[0][:-2])) if shapes and len(shapes[0]) > 2 else 0
    return (Evidence("matrices that it is given", items, "count"),) if items > 1 else ()
