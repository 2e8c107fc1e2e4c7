"""The compiler runs again and again in steady state.

## What it looks for
Work of Dynamo, Inductor, Triton or XLA's compiler inside the judged steps, or compiled regions
whose version number rises from step to step.

## Why it matters
One compilation takes from a tenth of a second to minutes, during which nothing is launched. It is
an investment that never returns if each step needs a new one.

## How to fix it
`torch.compile(dynamic=True)` or `mark_dynamic`, padding to a few sizes, tensors in place of Python
scalars that change. `TORCH_LOGS=recompiles` names the guard that failed.

## When to ignore it
In the first steps.
"""

from collections.abc import Iterator

from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.host_spans import host_spans, how_often, without
from pinchpoint.diagnosis.record import STACKS_AFTER_WARM_UP
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=STACKS_AFTER_WARM_UP, periodic=True, advice=NO_HINT)


def check(trace: Trace) -> Iterator[Found]:
    """Compilation inside the steps."""
    host = trace.host_ops
    if host is None:
        return
    compiling = activity(trace)[: len(host)] == GapKind.COMPILE
    spans = host_spans(trace, compiling, "compiling")
    if spans is None:
        return
    yield Found(
        summary=(
            f"Code is compiled anew inside the steps{spans.where}, {how_often(trace, spans)},"
            f" {duration(spans.ns_per_step)} of the mean step"
        ),
        evidence=spans.evidence,
        cost_ns_per_step=spans.ns_per_step,
        changes=without(trace, spans.rows, only_on_host=True),
        location=spans.place,
        fix="Compile for dynamic shapes, or pad inputs to a few sizes",
        hint="torch.compile(model, dynamic=True)  # TORCH_LOGS=recompiles names the guard",
        confirm='TORCH_LOGS=recompiles pinchpoint bench ab -- "python a.py" "python b.py"',
    )
