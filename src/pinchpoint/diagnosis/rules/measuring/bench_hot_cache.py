"""A bandwidth test reads buffers that stay in the cache.

## What it looks for
Pieces that the program times itself, in which one kernel runs over the same sizes again and again
and moves more bytes a second than the device's memory can. Kernels that nobody times may be as
fast. Without Python stacks, shapes or a known device this is not checked.

## Why it matters
A buffer smaller than the L2 cache is read from there. The figure says nothing about memory, and a
real workload will not see it.

## How to fix it
Walk over a set of buffers several times as large as the cache, or flush it between calls, as
`pinchpoint bench op` does.

## When to ignore it
Where cache bandwidth is what is asked for.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.costs import cost_of
from pinchpoint.analysis.host.frames import shows_python
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps
from pinchpoint.analysis.time.stopwatches import stopwatches
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.diagnosis.evidence.device_work import location_of
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_AND_STACKS
from pinchpoint.diagnosis.rule import About, NotChecked, Rule
from pinchpoint.hardware.specs import find_spec
from pinchpoint.trace import DeviceKind, Trace

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=SHAPES_AND_STACKS,
    about=About.BENCHMARK,
    confirm='pinchpoint bench op "x.add_(1)" --setup "..."',
)

# A loop of measurements repeats at least this often; programs call a kernel a few times.
FEWEST_REPEATS = 16
MOSTLY_RATIO = 0.8  # of the launches are the one kernel


def check(trace: Trace) -> Iterator[Found]:
    """Timed repeats of one kernel, faster than memory."""
    ops, host = trace.device_ops, trace.host_ops
    if ops is None or host is None:
        return
    if stopwatches(trace) is None:
        if shows_python(trace):  # and no reading of a clock: nothing is timed
            return
        raise NotChecked("no Python frames are recorded, so no readings of a clock")
    spec = find_spec(trace.devices[0].name) if trace.devices else None
    if spec is None or spec.memory_bytes_per_s is None:
        raise NotChecked("the device's memory bandwidth is not known")
    rows = np.flatnonzero(device_ops_in_steps(trace) & (ops["kind"] == DeviceKind.KERNEL))
    if len(rows) < FEWEST_REPEATS:
        return
    top = int(np.bincount(ops["name"][rows]).argmax())
    same = rows[ops["name"][rows] == top]
    one = int(same[np.argsort(ops["duration_ns"][same])[len(same) // 2]])
    if len(same) < max(FEWEST_REPEATS, MOSTLY_RATIO * len(rows)):
        return
    size = _bytes(trace, one)
    took = int(ops["duration_ns"][one])
    rate = size / max(took, 1) * 1e9
    if rate <= spec.memory_bytes_per_s:
        return
    yield Found(
        summary=(
            f"A timed kernel moves {rate / 1e12:.1f} TB/s, more than the memory's"
            f" {spec.memory_bytes_per_s / 1e12:.2f}: its {size / 2e6:.0f} MB stay in the cache"
        ),
        evidence=(
            Evidence("implied bandwidth", round(rate), "bytes/s"),
            Evidence("memory bandwidth of the device", round(spec.memory_bytes_per_s), "bytes/s"),
            Evidence("the kernel", took, "ns", int(ops["start_ns"][one]), trace.names[top]),
        ),
        cost_ns_per_step=None,
        location=location_of(trace, int(ops["host_op"][one])),
        consequence="the program's own timing is wrong",
        fix="Walk over buffers several times as large as the cache, or flush it between calls",
    )


def _bytes(trace: Trace, device_op: int) -> int:
    """Least bytes that the operator behind a kernel moves. Raises NotChecked: not known."""
    calls = launched_calls(trace)
    which = int(calls.which[device_op])
    if which == len(calls.calls) or not calls.calls[which].call.tensors():
        raise NotChecked("the shapes behind the timed kernel are not recorded")
    call = calls.calls[which].call
    cost = cost_of(call)
    if cost is None or cost.bytes is None or not all(map(call.dtype, call.tensors())):
        raise NotChecked(f"the bytes that {call.name} moves are not known")
    return cost.bytes
