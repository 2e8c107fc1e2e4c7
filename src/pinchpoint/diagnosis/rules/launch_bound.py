"""The device finishes kernels faster than the host can launch them.

## What it looks for
Short kernels, and a device that idles between them while the host dispatches the next one. The gain
is what replay says for the same kernels launched as one graph a step.

## Why it matters
Each operator costs the host several microseconds (Python, dispatcher, autograd, launch). When its
kernel takes less, the device waits for the host all the time, and a faster device changes nothing.

## How to fix it
Record the step once and replay it as a CUDA graph (`torch.compile(mode="reduce-overhead")`,
`torch.cuda.graph`), let a compiler fuse the kernels, or give each launch more work: a larger batch,
foreach or fused variants, whole-tensor operations in place of loops.

## When to ignore it
Where the batch is small on purpose (latency) and the step is fast enough.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.replay import GraphLaunches
from pinchpoint.diagnosis.locate import location_of
from pinchpoint.diagnosis.rule import Evidence, Finding
from pinchpoint.trace import ApiKind, DeviceKind, Trace

NEEDS = ("api_calls", "device_ops")
RECORD = "CPU and device activity together: ProfilerActivity.CPU and ProfilerActivity.CUDA"

SHORT_KERNEL_NS = 20_000  # an operator costs the host 5 to 20 µs; longer kernels hide that
FEWEST_LAUNCHES = 20  # a step with fewer is not bound by the number of launches


def check(trace: Trace) -> Iterator[Finding]:
    """Steps made of many short kernels, each launched from the host."""
    ops, calls = trace.device_ops, trace.api_calls
    if ops is None or calls is None:
        return
    launched = ops.known("api_call") & device_ops_in_steps(trace)
    launched &= calls["kind"][ops["api_call"]] != ApiKind.GRAPH_LAUNCH
    rows = np.flatnonzero(launched)
    kernels = rows[np.isin(ops["kind"][rows], (DeviceKind.KERNEL, DeviceKind.MEMSET))]
    count = per_step(trace, len(kernels))
    if count < FEWEST_LAUNCHES:
        return
    duration = ops["duration_ns"][kernels]
    median = int(np.median(duration))
    if median > SHORT_KERNEL_NS:
        return
    shortest = int(kernels[np.argmin(np.abs(duration - median))])
    busy = round(per_step(trace, int(duration.sum())))
    host = ops.value("host_op", shortest)
    yield Finding(
        summary=(
            f"The host launches {count:.0f} kernels a step, half of them shorter than"
            f" {median / 1e3:.1f} µs, and cannot keep up"
        ),
        evidence=(
            Evidence("launches", round(count, 1), "per step"),
            Evidence(
                "median kernel",
                median,
                "ns",
                int(ops["start_ns"][shortest]),
                trace.text(ops, "name", shortest),
            ),
            Evidence("device time of these kernels", busy, "ns per step"),
        ),
        cost_ns_per_step=None,
        changes=(GraphLaunches(kernels),),
        location=None if host is None else location_of(trace, int(host)),
        fix="Replay the step as a CUDA graph, or let a compiler fuse it",
        hint='model = torch.compile(model, mode="reduce-overhead")',
        confirm='pinchpoint bench ab -- "python train.py" "python train_compiled.py"',
    )
