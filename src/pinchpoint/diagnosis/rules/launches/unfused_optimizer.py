"""The optimizer launches its kernels parameter by parameter.

## What it looks for
Many launches inside `Optimizer.step`, a few for each parameter tensor: the single-tensor
implementation (`foreach=False, fused=False`). Kernels that are launched elsewhere, and optimizers
that launch a handful for all parameters, are not meant. The range that PyTorch writes around each
optimizer step is what shows it.

## Why it matters
A model with hundreds of parameter tensors costs thousands of launches, each a few microseconds of
host time for a kernel that is shorter than that.

## How to fix it
`fused=True` where the optimizer has it, else `foreach=True`.

## When to ignore it
Where the optimizer's time is hidden behind a busy device.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.replay import ReduceLaunches, ScaleDeviceOps, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.diagnosis.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.host_spans import host_spans, named
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_KNOB, Rule
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=CPU_AND_DEVICE,
    parent="launch-bound",
    knobs=("fused_optimizer",),
    advice=NO_KNOB,
)

FEWEST_LAUNCHES = 64  # fused and foreach variants launch a handful
FUSED_LAUNCHES = 4  # what a fused step over one group of parameters launches
SINGLE_PASS_RATIO = 0.3  # a fused AdamW moves 7 tensors' worth of bytes, separate kernels about 25


def check(trace: Trace) -> Iterator[Found]:
    """Optimizer steps of many launches."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None:
        return
    steps = named(trace, lambda name: name.startswith("Optimizer.step#"))
    steps &= host["kind"] == HostKind.ANNOTATION
    spans = host_spans(trace, steps, "host time of the optimizer")
    if spans is None:
        return
    inside = np.append(nearest(parents(host), steps) < len(host), False)
    work = device_work(trace, inside[ops.filled("host_op", len(host))], "its device time")
    if work is None or work.count / spans.count < FEWEST_LAUNCHES:
        return
    launches = per_step(trace, len(work.rows))
    fewer = FUSED_LAUNCHES * spans.count / launches
    yield Found(
        summary=(
            f"The optimizer launches {launches:.0f} kernels a step, parameter by parameter,"
            f" {duration(spans.ns_per_step)} on the host"
        ),
        evidence=(
            Evidence("launches in the optimizer", round(launches, 1), "per step"),
            *spans.evidence,
            *work.evidence[:1],
        ),
        cost_ns_per_step=spans.ns_per_step,
        changes=(
            ScaleHostSpans(spans.rows, fewer),
            ReduceLaunches(work.rows, fewer),
            ScaleDeviceOps(work.rows, SINGLE_PASS_RATIO, bytes_left=SINGLE_PASS_RATIO),
        ),
        location=spans.place,
        fix="Use the fused optimizer, or foreach",
        hint="torch.optim.AdamW(params, lr, fused=True)",
        confirm="pinchpoint try --knob fused_optimizer -- python train.py",
    )
