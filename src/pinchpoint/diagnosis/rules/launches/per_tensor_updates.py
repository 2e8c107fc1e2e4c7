"""Tensors are updated one by one by small operators that a grouped one would do together.

## What it looks for
A function that runs the same in-place elementwise operators (`mul_`, `add_`, `lerp_`, `copy_` and
their like) for dozens of tensors of several shapes in each step, outside optimizer steps, modules
and backward passes: averaged weights, statistics, clipping written out. Told by the operators,
their shapes and the function around them. A loop over one tensor, or over tensors of one shape, is
none: its turns may need each other. The optimizer's own launches are `unfused-optimizer`. Not
checked without shapes and stacks.

## Why it matters
Each call costs the host several microseconds, and its kernel, over one parameter, far less. A model
has hundreds of parameter tensors.

## How to fix it
The grouped operators take lists: `torch._foreach_lerp_(averages, parameters, 1 - decay)`,
`torch._foreach_mul_`, `torch._foreach_add_`. For averaged weights:
`torch.optim.swa_utils.AveragedModel` with `get_ema_multi_avg_fn`. Or keep all of it in one flat
tensor.

## When to ignore it
Where it comes once in many steps, or the device is busy meanwhile.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.attribution import backward_nodes
from pinchpoint.analysis.host.frames import frames_for_readers, shows_python
from pinchpoint.analysis.replay import ReduceLaunches, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.host_spans import named
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import SHAPES_AND_STACKS
from pinchpoint.diagnosis.rule import NO_HINT, NotChecked, Rule
from pinchpoint.trace import HostKind, Trace
from pinchpoint.trace.arrays import Mask, Rows, distinct
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=SHAPES_AND_STACKS,
    parent="launch-bound",
    advice=NO_HINT,
)

FEWEST_LAUNCHES = 64  # a step: as many as make an optimizer's launches matter
FEWEST_SHAPES = 4  # of the tensors: parameters of a model differ, the turns of a loop do not
GROUPED_LAUNCHES = 4  # of a foreach operator over the parameters of a model, each
_GROUPED = frozenset(
    f"aten::{name}_"
    for name in ("add", "sub", "mul", "div", "lerp", "copy", "addcmul", "addcdiv", "zero", "clamp")
)  # in-place operators that have a foreach form


def check(trace: Trace) -> Iterator[Found]:
    """The function that updates most tensors one by one."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None or not host.known("shapes").any():
        raise NotChecked("the recording has no shapes and types of inputs")
    if not shows_python(trace):
        raise NotChecked("the recording has no Python stacks")
    rows = np.flatnonzero(_updates(trace) & device_ops_in_steps(trace))
    around = np.append(nearest(parents(host), frames_for_readers(trace)), len(host))[
        _operators(trace)[rows]
    ]
    rows, around = rows[around < len(host)], around[around < len(host)]
    if not len(rows):
        return
    function = host["name"][around]
    mine = rows[function == np.bincount(function).argmax()]
    calls = launched_calls(trace)
    used = distinct(calls.which[mine])
    shapes = {calls.calls[which].call.shape(0) for which in used.tolist()}
    launches = per_step(trace, len(mine))
    if launches < FEWEST_LAUNCHES or len(shapes) < FEWEST_SHAPES:
        return
    chosen = np.zeros(len(ops), np.bool_)
    chosen[mine] = True
    work = device_work(trace, chosen, "their device time")
    if work is None:
        return
    operators = distinct(_operators(trace)[mine])
    names = sorted({trace.names[name] for name in distinct(host["name"][operators]).tolist()})
    fewer = min(GROUPED_LAUNCHES * len(names) / launches, 1.0)
    spent_ns = round(per_step(trace, int(host["duration_ns"][operators].sum())))
    yield Found(
        summary=(
            f"{' and '.join(names)} run for one tensor at a time"
            f"{f' in {work.place}' if work.place else ''}: {launches:.0f} launches a step,"
            f" {duration(spent_ns)} of the host's time as recorded"
        ),
        evidence=(
            Evidence("launches", round(launches, 1), "per step"),
            Evidence("different shapes", len(shapes), "count"),
            Evidence("host time in them", spent_ns, "ns per step"),
            *work.evidence[:1],
        ),
        cost_ns_per_step=spent_ns,
        changes=(ScaleHostSpans(operators, fewer), ReduceLaunches(work.rows, fewer)),
        location=work.place,
        fix="Update all tensors with one grouped operator",
        hint="torch._foreach_lerp_(averages, parameters, 1 - decay)",
        confirm='pinchpoint bench ab -- "python train.py" "python train_fixed.py"',
    )


def _operators(trace: Trace) -> Rows:
    """The operator behind each device operation, a row of ``host_ops``; its length for none."""
    host = trace.host_ops
    assert host is not None
    return np.minimum(launched_calls(trace).operator, len(host))


def _updates(trace: Trace) -> Mask:
    """Device operations of in-place elementwise operators outside steps, modules and backward."""
    host, calls = trace.host_ops, launched_calls(trace)
    assert host is not None
    chain = parents(host)
    elsewhere = backward_nodes(trace) | (host["kind"] == HostKind.MODULE)
    elsewhere |= named(trace, lambda name: name.startswith("Optimizer.step#"))
    inside = np.append(nearest(chain, elsewhere) < len(host), True)
    updates = calls.where(lambda of: of.call.name in _GROUPED)
    found: Mask = updates & ~inside[_operators(trace)]
    return found
