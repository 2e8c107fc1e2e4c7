"""The device finishes kernels faster than the host can launch them.

## What it looks for
Short kernels, and a device that waits while the host dispatches operators that launch them, or runs
Python that calls these. The gain is what replay says for the same kernels launched as one graph a
step. A device that is busy would not be faster for it. Nor is this the cause where most of the
device's wait for the host has another one: a wait of the host, work on the CPU, a function that
launches nothing, or a single call of an operator that launches hundreds of kernels. Where the
device may well decide the step without the profiler, the confidence is low.

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

from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_KNOB, Rule
from pinchpoint.diagnosis.rules.launches._late_launches import late_launches
from pinchpoint.diagnosis.rules.launches._many_launches import many_launches
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("api_calls", "device_ops"),
    record=CPU_AND_DEVICE,
    generic=True,
    knobs=("compile",),
    advice=NO_KNOB,
    confirm="pinchpoint try --knob compile -- python train.py",
)


def check(trace: Trace) -> Iterator[Found]:
    """Steps made of many short kernels, each launched from the host."""
    launches, late = many_launches(trace), late_launches(trace)
    if launches is None or late is None:
        return
    yield Found(
        summary=(
            f"The host launches {launches.count:.0f} kernels a step, half of them shorter than"
            f" {launches.median_ns / 1e3:.1f} µs, and cannot keep up"
        ),
        evidence=launches.evidence,
        cost_ns_per_step=None,
        changes=launches.as_graph,
        location=late.place or launches.place,
        confidence="high" if late.surely else "low",
        fix="Replay the step as a CUDA graph, or let a compiler fuse it",
        hint='model = torch.compile(model, mode="reduce-overhead")',
    )
