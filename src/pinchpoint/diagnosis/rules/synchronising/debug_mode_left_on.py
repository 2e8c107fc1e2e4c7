"""Autograd's anomaly detection, checks of arguments, or a tracer of Python lines, was left on.

## What it looks for
A NaN check with a read of its result behind each backward node, on the thread that runs the
backward pass: what `torch.autograd.set_detect_anomaly(True)` adds. Checks of gradients after the
backward pass are the program's own (`per-param-sync`). Where Python frames were recorded, also the
checks that `torch.distributions` makes of its arguments and values by default, each of which the
host waits for. Where such a constructor factors a matrix after its check did, the range is down to
a step without the constructor's work: one that is given the factor. And, in a run folder, a
debugger, a coverage tool or a function of `sys.settrace` that is told of every line in the thread
of the steps: it leaves no event in a trace. Of what Python takes beyond dispatching operators, a
third (tools in C) to nearly all (functions in Python) is then the tracer's.

## Why it matters
Each node's outputs are scanned and the host waits for the answer; forward operators also record a
Python stack. The step gets several times slower. A distribution's check reads all of its arguments;
that of a covariance compares it with its transpose and factors it. A tracer is called for each line
that runs.

## How to fix it
Turn it off: `torch.autograd.set_detect_anomaly(False)`; `sys.settrace(None)`, and no debugger or
coverage tool around the training loop. `Distribution.set_default_validate_args(False)` of
`torch.distributions`, and `MultivariateNormal(mean, scale_tril=factor)` where the factor is at
hand.

## When to ignore it
While hunting a NaN, or where arguments may be wrong.
"""

from collections.abc import Iterator
from functools import partial
from operator import eq

import numpy as np

from pinchpoint.analysis.causal.computing import host_computing
from pinchpoint.analysis.host.ancestry import nearest, operators_around, parents, within
from pinchpoint.analysis.host.attribution import forward_rows
from pinchpoint.analysis.host.frames import frames_for_readers
from pinchpoint.analysis.replay import Change, RemoveHostTime
from pinchpoint.analysis.run import run_facts
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step, rows_in_steps
from pinchpoint.analysis.time.host_activity import GapKind, activity
from pinchpoint.analysis.time.host_waits import WaitReason, host_waits
from pinchpoint.analysis.work.pointwise_chains import LaunchedCall, launched_calls
from pinchpoint.diagnosis.evidence.device_work import device_work, waiting, without_work
from pinchpoint.diagnosis.evidence.host_spans import (
    host_spans,
    inside_of,
    named,
    outermost,
    without,
)
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.regex import regex
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.durations import duration

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
    """NaN checks inside backward nodes, checks of arguments, and tracers."""
    yield from _tracer(trace)
    yield from _arguments(trace)
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


_CONSTRAINTS = regex(
    r"(^|/)torch/distributions/"
    r"(constraints\.py\(\d+\): check|distribution\.py\(\d+\): _validate_sample)$"
)
_CONSTRUCTS = regex(r"(^|/)torch/distributions/\w+\.py\(\d+\): __init__$")
_FACTORS = "aten::linalg_cholesky_ex"


def _arguments(trace: Trace) -> Iterator[Found]:
    """Checks that distributions make of what they are given."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None:
        return
    checks = named(trace, lambda name: _CONSTRAINTS.search(name) is not None)
    checks &= host["kind"] == HostKind.PYTHON
    found = host_spans(trace, checks, "checks of arguments, on the host")
    if found is None:
        return
    inside = inside_of(trace, found.rows)[ops.filled("host_op", len(host))]
    work = device_work(trace, inside, "checks of arguments, on the device")
    if work is None:
        return
    factored = _factored_again(trace, found.rows)
    again = ", and a matrix is factored again behind its check" if len(factored) else ""
    yield Found(
        summary=(
            f"torch.distributions checks what it is given {found.count:.3g} × a step:"
            f" {duration(work.ns_per_step)} of the device's time, and the host waits for each"
            f" answer{again}"
        ),
        evidence=(*work.evidence, *found.evidence),
        cost_ns_per_step=max(work.ns_per_step, found.ns_per_step),
        changes=without(trace, found.rows),
        at_best=_without_constructors(trace, factored, found.rows) if len(factored) else (),
        location=found.place,
        fix=(
            "Give the distribution its factor (scale_tril), and switch the checks off"
            if len(factored)
            else "Switch the checks off once the program is right"
        ),
        hint=(
            "MultivariateNormal(mean, scale_tril=factor)  # in place of its covariance"
            if len(factored)
            else "torch.distributions.Distribution.set_default_validate_args(False)"
        ),
    )


def _factored_again(trace: Trace, checks: Rows) -> Rows:
    """Constructors of distributions in the steps whose check factors, and which factor beside."""
    host = trace.host_ops
    assert host is not None
    chain, none = parents(host), len(host)
    constructs = named(trace, lambda name: _CONSTRUCTS.search(name) is not None)
    top = outermost(trace, constructs & rows_in_steps(trace, host))
    factors = named(trace, lambda name: name == _FACTORS)
    checked = inside_of(trace, checks)[:none]
    around = nearest(chain, top)
    in_check, beside = (np.unique(around[factors & of]) for of in (checked, ~checked))
    found: Rows = np.intersect1d(in_check, beside)
    return found[found < none].astype(np.intp)


def _without_constructors(trace: Trace, rows: Rows, checks: Rows) -> tuple[Change, ...]:
    """Without what they compute, forward and backward, nor any check, nor the product of a factor
    with itself that the function around them hands them."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    forward = np.append(forward_rows(trace), len(host))[ops.filled("host_op", len(host))]
    given = np.append(_squares_beside(trace, rows), False)[operators_around(trace)]
    inside = np.append(inside_of(trace, rows) | given, False)[forward]
    gone = np.flatnonzero(inside & device_ops_in_steps(trace))
    return (*without(trace, np.union1d(rows, checks)), *without_work(trace, gone))


def _squares_beside(trace: Trace, rows: Rows) -> Mask:
    """Products of a batch of matrices with the same shape the other way round, in the functions of
    the program that these rows are called in."""
    host, calls = trace.host_ops, launched_calls(trace)
    assert host is not None
    own = frames_for_readers(trace)
    around = np.append(nearest(parents(host), own), len(host))
    callers = np.unique(around[rows])
    square = calls.operator[calls.where(_is_with_itself)]
    found = np.zeros(len(host), np.bool_)
    found[square[np.isin(around[square], callers[callers < len(host)])]] = True
    return found


def _is_with_itself(of: LaunchedCall) -> bool:
    left, right = of.stride(0), of.stride(1)
    alike = of.call.name in ("aten::mm", "aten::bmm") and of.call.shape(0) == of.call.shape(1)
    return alike and left is not None and right is not None and left[-2:] == right[-2:][::-1]
