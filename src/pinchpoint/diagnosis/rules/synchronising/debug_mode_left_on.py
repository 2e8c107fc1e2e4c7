"""Autograd's anomaly detection, or a tracer of Python lines, was left on.

## What it looks for
A NaN check with a read of its result behind each backward node, on the thread that runs the
backward pass: what `torch.autograd.set_detect_anomaly(True)` adds. Checks of gradients after the
backward pass are the program's own (`per-param-sync`). Also, in a run folder, a debugger, a
coverage tool or a function of `sys.settrace` that is told of every line in the thread of the steps:
it leaves no event in a trace. Of what Python takes beyond dispatching operators, a third (tools in
C) to nearly all (functions in Python) is then the tracer's.

## Why it matters
Each node's outputs are scanned and the host waits for the answer; forward operators also record a
Python stack. The step gets several times slower. A tracer is called for each line that runs.

## How to fix it
Turn it off: `torch.autograd.set_detect_anomaly(False)`; `sys.settrace(None)`, and no debugger or
coverage tool around the training loop.

## When to ignore it
While hunting a NaN.
"""

from collections.abc import Iterator
from functools import partial
from operator import eq

import numpy as np

from pinchpoint.analysis.causal.computing import host_computing
from pinchpoint.analysis.host.ancestry import parents, within
from pinchpoint.analysis.replay import RemoveHostTime
from pinchpoint.analysis.run import run_facts
from pinchpoint.analysis.steps.in_steps import per_step, rows_in_steps
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.analysis.time.host_waits import WaitReason, host_waits
from pinchpoint.diagnosis.evidence.device_work import waiting
from pinchpoint.diagnosis.evidence.host_spans import named, without
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import HostKind, Trace

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=CPU_AND_DEVICE,
    parent="sync-in-loop",
    advice=NO_HINT,
)

# NaN checks for each backward node; anomaly detection checks every output of each.
LEAST_OF_NODES = 0.5
# Of Python's time: coverage's own pages say that its tracer in C takes 1.5 to 3 times as long.
LEAST_OF_TRACED = 1 / 3
_CHECKS = ("aten::isnan", "aten::any", "aten::is_nonzero", "aten::item", "aten::ne")


def check(trace: Trace) -> Iterator[Found]:
    """NaN checks inside backward nodes, and tracers."""
    yield from _tracer(trace)
    host = trace.host_ops
    if host is None:
        return
    nodes = named(trace, lambda name: name.startswith("autograd::engine::"))
    inside = within(parents(host), nodes)[:-1]
    judged = rows_in_steps(trace, host)
    names = {check: named(trace, partial(eq, check)) for check in _CHECKS}
    nan = names["aten::isnan"] | names["aten::ne"]
    checks = np.flatnonzero(nan & inside & judged)
    count = per_step(trace, int((nodes & judged).sum()))
    reads = waiting(trace, "reads of device values", WaitReason.VALUE)
    waits = host_waits(trace)
    in_backward = np.append(inside, False)[waits.host_op[waits.rows(WaitReason.VALUE)]]
    if reads is None or not count or per_step(trace, len(checks)) < LEAST_OF_NODES * count:
        return
    if per_step(trace, int(in_backward.sum())) < LEAST_OF_NODES * count:
        return
    rows = np.zeros(len(host), np.bool_)
    for mask in names.values():
        rows |= mask & inside & judged
    rows &= host["kind"] == HostKind.OPERATOR
    first = int(checks[0])
    yield Found(
        summary=(
            f"Anomaly detection is on: {per_step(trace, len(checks)):.0f} NaN checks a step,"
            " each of which the host waits for"
        ),
        evidence=(
            Evidence(
                "NaN checks in backward",
                round(per_step(trace, len(checks)), 1),
                "per step",
                int(host["start_ns"][first]),
                trace.text(host, "name", first),
            ),
            Evidence("backward nodes", round(count, 1), "per step"),
            *reads.evidence,
        ),
        cost_ns_per_step=reads.waited_ns,
        changes=(*reads.dropped, *without(trace, np.flatnonzero(rows))),
        location=reads.place,
        fix="Turn anomaly detection off",
        hint="torch.autograd.set_detect_anomaly(False)",
    )


def _tracer(trace: Trace) -> Iterator[Found]:
    """What the run folder says of the thread of the steps; replay takes of Python what may be the
    tracer's."""
    name = run_facts(trace).line_tracer
    if name is None:
        return
    computing = host_computing(trace)
    python = activity(trace)[computing.row] == GapKind.PYTHON
    start, took = computing.start_ns[python], computing.took_ns[python]
    least, most = (
        RemoveHostTime(start, start + (share * took).astype(np.int64))
        for share in (LEAST_OF_TRACED, 1.0)
    )
    in_python = round(int(took.sum()) / max(computing.steps, 1))
    yield Found(
        summary=f"A tracer or debugger runs in every line of the steps' thread: {name}",
        evidence=(
            Evidence("told of every line", name, "name"),
            Evidence("Python while nothing is launched", in_python, "ns per step"),
        ),
        cost_ns_per_step=in_python,
        changes=(least,),
        at_best=(most,),
        fix="Run without it: no debugger, coverage tool or sys.settrace around the loop",
        hint="sys.settrace(None)",
        confidence="medium",
    )
