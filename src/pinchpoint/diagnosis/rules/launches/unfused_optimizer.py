"""The optimizer launches its kernels parameter by parameter.

## What it looks for
Many launches inside `Optimizer.step`, a few for each parameter tensor: the single-tensor
implementation (`foreach=False, fused=False`). Or many calls of the fused one, of which several have
the same hyperparameters: one call updates all parameters of a group, and equal groups can be one.
Or a foreach update that runs dozens of times a step: once for each of many param groups.
Kernels that are launched elsewhere, and optimizers that launch a handful for all parameters, are
not meant, nor optimizers that mostly multiply or factor matrices (Muon, Shampoo, SOAP): products
and the hundreds of kernels of a solver are not fused away, and neither are collectives of
optimizers whose states are spread over ranks. The range that PyTorch writes around each optimizer
step is what shows it.

## Why it matters
A model with hundreds of parameter tensors costs thousands of launches, each a few microseconds of
host time for a kernel that is shorter than that.

## How to fix it
`fused=True` where the optimizer has it, else `foreach=True`. Put parameters that have the same
learning rate, weight decay and so on into one group.

## When to ignore it
Where the optimizer's time is hidden behind a busy device.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.device.categories import Category, category_of_device_ops
from pinchpoint.analysis.host.ancestry import nearest, parents, within
from pinchpoint.analysis.replay import (
    MergeDeviceOps,
    ReduceLaunches,
    ScaleDeviceOps,
    ScaleHostSpans,
)
from pinchpoint.analysis.steps.in_steps import judged_steps, per_step
from pinchpoint.diagnosis.evidence.device_work import DeviceWork, device_work
from pinchpoint.diagnosis.evidence.host_spans import HostSpans, host_spans, named
from pinchpoint.diagnosis.evidence.solvers import SOLVERS
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import ANY_PROGRAM, NO_KNOB, Rule
from pinchpoint.frozen import dataclass
from pinchpoint.trace import DeviceKind, HostKind, Trace
from pinchpoint.trace.arrays import Ints, Rows
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
    inside = within(parents(host), steps)
    mine = inside[ops.filled("host_op", len(host))]
    mine &= ops["kind"] != DeviceKind.COLLECTIVE  # of sharded ones: no fused form has less of it
    products = mine & (category_of_device_ops(trace) == Category.GEMM)
    solvers = within(parents(host), named(trace, lambda name: bool(SOLVERS.match(name))))
    products |= mine & solvers[ops.filled("host_op", len(host))]
    if 2 * ops["duration_ns"][products].sum() > ops["duration_ns"][mine].sum():
        return
    work = device_work(trace, mine & ~products, "its device time")
    if work is None or work.count / spans.count < FEWEST_LAUNCHES:
        return
    if (fused := _fused_calls(trace, work.rows)) is not None:
        yield from _equal_groups(trace, spans, work, fused)
        return
    launches = per_step(trace, len(work.rows))
    fewer = FUSED_LAUNCHES * spans.count / launches
    groups = _foreach_groups(trace, work.rows)
    how = "parameter by parameter"
    if groups is not None:
        how = f"in {groups:.0f} foreach updates, one for each param group"
    yield Found(
        summary=(
            f"The optimizer launches {launches:.0f} kernels a step, {how},"
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
        fix="Use the fused optimizer, or foreach" if groups is None else _FEWER_GROUPS,
        hint=_FUSED_HINT if groups is None else _EQUAL_GROUPS_HINT,
        confirm=_TRY if groups is None else ANY_PROGRAM,
    )


_FUSED_HINT = "torch.optim.AdamW(params, lr, fused=True)"
_TRY = "pinchpoint try --knob fused_optimizer -- python train.py"
_EQUAL_GROUPS_HINT = '{"params": [p for p in ...], "lr": lr}  # one for each lr and weight decay'
_FEWER_GROUPS = (
    "Put parameters with equal hyperparameters into one param group: foreach and fused updates take"
    " a group at once. fused=True alone still launches two kernels for each group"
)
FOREACH_CALLS = 3  # of a group, at least: what Adam and SGD with momentum do to each takes as many


def _foreach_groups(trace: Trace, rows: Rows) -> float | None:
    """How often a step the foreach update runs, where most launches are of one that runs often."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    foreach = named(trace, lambda name: name.startswith("aten::_foreach_"))
    by = np.append(nearest(parents(host), foreach), len(host))[
        ops.filled("host_op", len(host))[rows]
    ]
    mine = np.unique(by[by < len(host)])
    if 2 * (by < len(host)).sum() < len(rows) or not len(mine):
        return None
    _, counts = np.unique(host["name"][mine], return_counts=True)
    usual = float(np.sort(counts)[(len(counts) - 1) // 2])  # each operator, once for a group
    groups = per_step(trace, usual)
    return groups if len(counts) >= FOREACH_CALLS and groups >= FEWEST_LAUNCHES else None


# ------------------------------------------------------------------------------------------------
# The fused update, called once for each group of parameters.

MOSTLY_FUSED_RATIO = 0.4  # of the launches: each group has one for its step counters, too


@dataclass(frozen=True, eq=False)
class _Fused:
    """Calls of a fused update; ``group`` numbers those with equal hyperparameters in a step."""

    rows: Rows  # of device_ops
    group: Ints
    calls: int


def _fused_calls(trace: Trace, rows: Rows) -> _Fused | None:
    """None where the launches of the optimizer are not those of a fused update."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    fused = named(trace, lambda name: name.startswith("aten::_fused_"))
    by = np.append(nearest(parents(host), fused), len(host))[ops.filled("host_op", len(host))[rows]]
    mine = by < len(host)
    if mine.sum() < MOSTLY_FUSED_RATIO * len(rows):
        return None
    call, known = by[mine], host.known("values")[by[mine]].all()
    # Hyperparameters that were not recorded may all be different.
    values = host["values"][call].astype(np.int64) if known else call
    step = judged_steps(trace).step_of(host["start_ns"][call])
    group = np.unique(np.stack((step, values)), axis=1, return_inverse=True)[1].reshape(-1)
    return _Fused(rows[mine], group.astype(np.int64), len(np.unique(call)))


def _equal_groups(
    trace: Trace, spans: HostSpans, work: DeviceWork, fused: _Fused
) -> Iterator[Found]:
    needed = int(fused.group.max()) + 1
    calls, groups = per_step(trace, fused.calls), per_step(trace, needed)
    if calls - groups < FEWEST_LAUNCHES:
        return
    yield Found(
        summary=(
            f"The optimizer calls its fused update {calls:.0f} times a step for {groups:.0f}"
            f" different sets of hyperparameters, {duration(spans.ns_per_step)} on the host"
        ),
        evidence=(
            Evidence("calls of the fused update", round(calls, 1), "per step"),
            Evidence("different hyperparameters", round(groups, 1), "per step"),
            *spans.evidence,
            *work.evidence[:1],
        ),
        cost_ns_per_step=spans.ns_per_step,
        changes=(
            MergeDeviceOps(fused.rows, fused.group),
            ScaleHostSpans(spans.rows, groups / calls),
        ),
        location=spans.place,
        fix="Put parameters with equal hyperparameters into one param group",
        hint=_EQUAL_GROUPS_HINT,
        confirm=ANY_PROGRAM,
    )
