"""The optimizer of a program on the CPU updates one parameter after another, operator by operator.

## What it looks for
Optimizer steps of a program without a device that call dozens of operators, none of them a fused
update. Programs on a device are judged by `unfused-optimizer`.

## Why it matters
AdamW calls a dozen operators for each parameter, and each reads and writes the whole parameter
again. The fused update reads and writes everything once, in one call.

## How to fix it
`fused=True`, which PyTorch has for Adam, AdamW, SGD and Adagrad on CPUs.

## When to ignore it
Where the optimizer has no fused form.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.on_cpu import cpu_operators
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import inside, is_material, judged
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=STACKS, knobs=("fused_optimizer",), advice=NO_HINT)

OPTIMIZER = "Optimizer.step#"
FEWEST_CALLS = 64  # fused and foreach variants call a handful
# Of the time: a fused AdamW moves 7 tensors' worth of bytes, separate operators about 25.
SINGLE_PASS_RATIO = 0.3


def check(trace: Trace) -> Iterator[Found]:
    """Optimizer steps of many operators."""
    mine = judged(trace)
    if mine is None or trace.host_ops is None:
        return
    host = trace.host_ops
    calls = np.flatnonzero(mine & inside(trace, OPTIMIZER) & cpu_operators(trace).called)
    fused = any("_fused_" in trace.names[name] for name in np.unique(host["name"][calls]).tolist())
    if fused or per_step(trace, len(calls)) < FEWEST_CALLS:
        return
    starts = np.array([name.startswith(OPTIMIZER) for name in trace.names], np.bool_)
    ranges = starts[host["name"]] & (host["kind"] == HostKind.ANNOTATION)
    spans = host_spans(trace, mine & ranges, "time of the optimizer")
    if spans is None or not is_material(trace, spans):
        return
    count = per_step(trace, len(calls))
    yield Found(
        summary=(
            f"The optimizer calls {count:.0f} operators a step, parameter by parameter,"
            f" {duration(spans.ns_per_step)}"
        ),
        evidence=(
            Evidence("operators in the optimizer", round(count), "per step"),
            *spans.evidence,
        ),
        cost_ns_per_step=spans.ns_per_step,
        changes=(ScaleHostSpans(spans.rows, SINGLE_PASS_RATIO),),
        location=spans.place,
        fix="Use the fused optimizer",
        hint="torch.optim.AdamW(params, lr, fused=True)",
        confirm="pinchpoint try --knob fused_optimizer -- python train.py",
    )
