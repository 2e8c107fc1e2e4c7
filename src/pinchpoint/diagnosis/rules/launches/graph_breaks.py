"""One model runs as many compiled pieces, with Python in between.

## What it looks for
Several different compiled regions in each step, entered one after the other by the same caller,
where a model without breaks would be one. Calls of one region again and again are layers that share
it, and forward, backward and optimizer are three regions without any break.

## Why it matters
Each piece costs a guard check, a wrapper and Python to get from one to the next, and nothing is
fused across a break.

## How to fix it
`TORCH_LOGS=graph_breaks` names the reasons: prints, `.item()`, calls the compiler cannot trace.
Move them out of the model, or mark them with `torch.compiler.disable` at its edge.

## When to ignore it
A handful of regions that are large.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import parents
from pinchpoint.analysis.replay import AddHostTime, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step, rows_in_steps
from pinchpoint.diagnosis.evidence.host_spans import host_spans, inside_of, named
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Rows

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=CPU_AND_DEVICE,
    parent="launch-bound",
    advice=NO_HINT,
)

FEWEST_REGIONS = 6  # a step; forward, backward and an optimizer make three without any break
COMPILED_LAUNCH_NS = 7_000  # of each kernel in compiled code: 6.8 to 9.1 µs measured on a GB200
_REGION = "Torch-Compiled Region: "


def check(trace: Trace) -> Iterator[Found]:
    """Steps of many compiled regions."""
    host = trace.host_ops
    if host is None:
        return
    regions = named(trace, lambda name: name.startswith(_REGION))
    spans = host_spans(trace, regions, "time in compiled regions")
    if spans is None:
        return
    entered = np.flatnonzero(regions & rows_in_steps(trace, host))  # also those inside others
    count = per_step(trace, len(entered))
    kinds = len({trace.names[n] for n in host["name"][entered].tolist()})
    if count < FEWEST_REGIONS or kinds < 2:
        return
    around = _callers(trace, spans.rows)
    yield Found(
        summary=f"A step enters {count:.0f} compiled regions of {kinds} kinds, with Python between",
        evidence=(
            Evidence("compiled regions entered", round(count, 1), "per step"),
            Evidence("kinds of compiled regions", kinds, "regions"),
            *spans.evidence,
        ),
        cost_ns_per_step=spans.ns_per_step,
        changes=(
            ScaleHostSpans(around, 1 / count),
            AddHostTime(_launches(trace, around), COMPILED_LAUNCH_NS),
        ),
        location=spans.place,
        fix="Remove what the compiler cannot trace from between the regions",
        hint="TORCH_LOGS=graph_breaks python train.py",
    )


def _launches(trace: Trace, around: Rows) -> Rows:
    """Calls inside these rows that launch device work: they are made in one region as well."""
    host, calls, ops = trace.host_ops, trace.api_calls, trace.device_ops
    assert host is not None
    assert calls is not None
    assert ops is not None
    launching = np.unique(ops["api_call"][ops.known("api_call")])
    inside = inside_of(trace, around)[calls.filled("host_op", len(host))[launching]]
    result: Rows = launching[inside]
    return result


def _callers(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """In each step, the innermost row that encloses all of its regions; else the regions."""
    host = trace.host_ops
    assert host is not None
    chain, none = parents(host), len(host)
    found: list[int] = []
    step = judged_steps(trace).step_of(host["start_ns"][rows])
    for at in np.unique(step).tolist():
        mine = rows[step == at]
        last = int(host.end_ns[mine].max())
        row = int(chain[mine[0]])
        while row < none and host.end_ns[row] < last:
            row = int(chain[row])
        if row < none and rows_in_steps(trace, host)[row]:
            found.append(row)
        else:
            found += mine.tolist()
    return np.unique(np.array(found, np.intp))
