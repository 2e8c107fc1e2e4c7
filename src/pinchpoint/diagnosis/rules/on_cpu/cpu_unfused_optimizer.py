"""The optimizer of a program on the CPU updates one parameter after another, operator by operator.

## What it looks for
Steps of PyTorch's Adam, AdamW, SGD or Adagrad in a program without a device that call dozens of
operators, none of them a fused update. Others have no fused form, and are not meant; nor are steps
that mostly multiply matrices: products are not fused away. Programs on a device are judged by
`unfused-optimizer`.

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

from pinchpoint.analysis.costs import cost_of
from pinchpoint.analysis.host.ancestry import parents
from pinchpoint.analysis.host.on_cpu import cpu_operators
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.work.pointwise_chains import distinct_calls
from pinchpoint.diagnosis.evidence.host_spans import host_spans
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import STACKS
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.diagnosis.rules.on_cpu._shared import fair_share, inside, judged, too_small
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.durations import duration

RULE = Rule(needs=("host_ops",), record=STACKS, knobs=("fused_optimizer",), advice=NO_HINT)

OPTIMIZER = "Optimizer.step#"
NODE = "autograd::engine::evaluate_function"
FUSED = ("Adam", "AdamW", "SGD", "Adagrad")  # of torch.optim, with fused=True on CPUs
FEWEST_CALLS = 64  # fused and foreach variants call a handful
# Of the time: a fused AdamW moves 7 tensors' worth of bytes, separate operators about 25.
SINGLE_PASS_RATIO = 0.3


def check(trace: Trace) -> Iterator[Found | Small]:
    """Optimizer steps of many operators."""
    mine = judged(trace)
    if mine is None or trace.host_ops is None:
        return
    host = trace.host_ops
    called = mine & inside(trace, OPTIMIZER) & cpu_operators(trace).called
    own = called & ~_of_a_closure(trace)
    calls = np.flatnonzero(own)
    fused = any("_fused_" in trace.names[name] for name in np.unique(host["name"][calls]).tolist())
    if fused or per_step(trace, len(calls)) < FEWEST_CALLS or _mostly_products(trace, mine):
        return
    starts = np.array([name.startswith(OPTIMIZER) for name in trace.names], np.bool_)
    ranges = starts[host["name"]] & (host["kind"] == HostKind.ANNOTATION)
    has_a_closure = int(own.sum()) < int(called.sum())
    spans = host_spans(trace, own if has_a_closure else mine & ranges, "time of the optimizer")
    fair = 1.0 if spans is None else fair_share(trace, spans)
    if spans is None or (name := _class_of(trace, spans.rows)) not in FUSED:
        return
    if small := too_small(trace, spans, fair):
        yield small
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
        changes=(ScaleHostSpans(spans.rows, 1.0 - fair * (1.0 - SINGLE_PASS_RATIO)),),
        location=spans.place,
        fix="Use the fused optimizer",
        hint=f"torch.optim.{name}(..., fused=True)",
        confirm="pinchpoint try --knob fused_optimizer -- python train.py",
    )


def _mostly_products(trace: Trace, mine: Mask) -> bool:
    """Whether most of the optimizer's time goes into products (Muon, Shampoo, SOAP): these stay."""
    operators = cpu_operators(trace)
    own = mine & inside(trace, OPTIMIZER) & ~_of_a_closure(trace)
    rows = np.flatnonzero(own & (operators.own_ns > 0))
    calls, which = distinct_calls(trace, rows)
    costs = [cost_of(of.call) for of in calls]
    products = np.array([cost is not None and cost.matrix for cost in costs], np.bool_)[which]
    own_ns = operators.own_ns[rows]
    return bool(2 * own_ns[products].sum() > own_ns.sum())


def _class_of(trace: Trace, rows: Rows) -> str:
    """The optimizer's class, as the first of its calls is named: ``Optimizer.step#Adam.step``."""
    host = trace.host_ops
    assert host is not None
    chain = parents(host)
    row = int(rows[0])
    while row >= 0:
        name = trace.text(host, "name", row) or ""
        if name.startswith(OPTIMIZER):
            return name.removeprefix(OPTIMIZER).removesuffix(".step")
        row = int(chain[row])
    return "AdamW"


def _of_a_closure(trace: Trace) -> Mask:
    """Rows up to the end of the last backward node in the same call of an optimizer: some trainers
    run forward and backward inside ``optimizer.step(closure)``."""
    host = trace.host_ops
    assert host is not None
    optimizers, nodes = (
        np.array([name.startswith(prefix) for name in trace.names], np.bool_)
        for prefix in (OPTIMIZER, NODE)
    )
    ranges = np.flatnonzero(optimizers[host["name"]] & (host["kind"] == HostKind.ANNOTATION))
    found = np.zeros(len(host), np.bool_)
    backward = np.flatnonzero(nodes[host["name"]])
    for row in ranges.tolist():
        begin, end = int(host["start_ns"][row]), int(host.end_ns[row])
        inside_it = backward[(host["start_ns"][backward] >= begin) & (host.end_ns[backward] <= end)]
        if len(inside_it):
            last = int(host.end_ns[inside_it].max())
            found |= (host["start_ns"] >= begin) & (host["start_ns"] < last)
    return found
