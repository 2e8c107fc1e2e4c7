"""Weights are computed from other parameters in every call, though nothing trains them.

## What it looks for
Steps without a backward pass in which modules compute a weight of theirs before they use it: calls
of a parametrisation (`torch.nn.utils.parametrize`, whose result depends on parameters alone) or of
the operator of weight normalisation. Told by the module or the operator; a weight that depends on
the data (attention scores, modulated convolutions) goes through neither. Steps with a backward pass
have reason to compute the weight anew, and are left alone.

## Why it matters
Parameters do not change between calls, so every call but the first computes what is known: a few
small kernels and a lot of Python for each layer, of each call. In a model of many short layers this
is more work than the layers.

## How to fix it
Compute the weights once, before serving: `parametrize.remove_parametrizations(layer, "weight")`,
or `torch.nn.utils.remove_weight_norm(layer)` for the older form. `with parametrize.cached():`
computes them once for all that runs inside it.

## When to ignore it
Where parameters change between the calls after all.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import parents, within
from pinchpoint.analysis.replay import DropDeviceOps, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step, rows_in_steps
from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.host_spans import outermost
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import STACKS_AND_MODULES
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.regex import regex
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration
from pinchpoint.trace.names import rows_named

RULE = Rule(needs=("host_ops", "device_ops"), record=STACKS_AND_MODULES, advice=NO_HINT)

# The module and the property of PyTorch's parametrisations, and the operator of weight norm.
_COMPUTES_A_WEIGHT = regex(
    r"nn\.Module: ParametrizationList_\d+$"
    r"|torch/nn/utils/parametrize\.py\(\d+\): get_(parametrized|cached_parametrization)$"
    r"|aten::_weight_norm(_interface)?$"
)


def check(trace: Trace) -> Iterator[Found]:
    """Calls that compute weights in steps that only infer."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None or workload(trace).trains:
        return
    computes = rows_named(trace, host, lambda name: _COMPUTES_A_WEIGHT.match(name) is not None)
    if not computes.any():
        return
    calls = np.flatnonzero(outermost(trace, computes) & rows_in_steps(trace, host))
    inside = within(parents(host), computes)
    launched = inside[ops.filled("host_op", len(host))] & device_ops_in_steps(trace)
    work = device_work(trace, launched, "kernels that compute weights")
    if work is None or not len(calls):
        return
    spent_ns = round(per_step(trace, int(host["duration_ns"][calls].sum())))
    times = per_step(trace, len(calls))
    yield Found(
        summary=(
            f"Weights are computed from other parameters {times:.3g} × a step"
            f"{f' in {work.place}' if work.place else ''}, though nothing trains:"
            f" {duration(spent_ns)} of the host's time as recorded, {duration(work.ns_per_step)} of"
            " the device's"
        ),
        evidence=(
            *work.evidence,
            Evidence("weights computed", round(times, 2), "per step"),
            Evidence("host time of it", spent_ns, "ns per step", int(host["start_ns"][calls[0]])),
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(DropDeviceOps(work.rows), ScaleHostSpans(calls, 0.0)),
        location=work.place,
        fix="Compute the weights once, before the loop",
        hint='torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")',
        confirm='pinchpoint bench ab -- "python serve.py" "python serve_fixed.py"',
    )
