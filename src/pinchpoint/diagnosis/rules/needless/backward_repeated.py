"""Several losses each run the backward pass of what they share.

## What it looks for
Nodes of the backward pass that run several times a step (autograd numbers them, and a number comes
again), each time with gradients that are added to those of the time before. Passes that record
nodes themselves (`create_graph=True`), whose gradients are not added up (`torch.autograd.grad`,
gradients dropped in between) or that an optimizer's step stands between, are left out: each of
those gradients is wanted for itself.

## Why it matters
The backward pass is linear: the gradient of a sum of losses is the sum of their gradients, and
costs one pass through what the losses share. Called on each loss with `retain_graph=True` it costs
one pass a loss, and one addition a parameter.

## How to fix it
Add the losses (with their weights) and call `backward` once.

## When to ignore it
Where gradients are clipped, scaled or read between the passes.
"""

from collections.abc import Iterator

from pinchpoint.analysis.host.ancestry import parents, within_rows
from pinchpoint.analysis.host.launches import main_thread
from pinchpoint.analysis.host.timeline import look_up, timelines
from pinchpoint.analysis.replay import ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.work.backward_runs import backward_runs
from pinchpoint.diagnosis.evidence.device_work import device_work, location_of, without_work
from pinchpoint.diagnosis.finding import Evidence, Found, Location
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops", "host_ops"),
    record=CPU_AND_DEVICE,
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "python train.py" "python train_one_backward.py"',
)


def check(trace: Trace) -> Iterator[Found]:
    """Backward nodes that run again, gradients added up."""
    runs = backward_runs(trace)
    if runs is None:
        return
    work = device_work(trace, _launched_inside(trace, runs.again), "in nodes that run again")
    if work is None:
        return
    place = _called_at(trace, runs.again) or work.place
    yield Found(
        summary=(
            f"Nodes of the backward pass run {runs.times:.3g} × a step"
            f"{f' in {place}' if place else ''}, gradients added up:"
            f" {duration(work.ns_per_step)} of each recorded step after their first run"
        ),
        evidence=(
            Evidence("runs of a node", round(runs.times, 2), "per step"),
            Evidence(
                "nodes that run again", round(per_step(trace, len(runs.again)), 1), "per step"
            ),
            *work.evidence,
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(*without_work(trace, work.rows), ScaleHostSpans(runs.again, 0.0)),
        location=place,
        fix="Add the losses and call backward once",
        hint="sum(losses).backward()",
    )


def _launched_inside(trace: Trace, rows: Rows) -> Mask:
    """Device operations launched in these rows of ``host_ops`` or in what they enclose."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    found: Mask = within_rows(parents(host), rows)[ops.filled("host_op", len(host))]
    return found


def _called_at(trace: Trace, rows: Rows) -> Location | None:
    """Where the thread of the steps is while the middle one of these rows runs."""
    host = trace.host_ops
    assert host is not None
    one = rows[len(rows) // 2 : len(rows) // 2 + 1]
    pieces = look_up(
        timelines(trace).get(main_thread(trace)), host["start_ns"][one], host.end_ns[one]
    )
    inside = pieces.row[(pieces.row >= 0) & (pieces.row < len(host))]
    return location_of(trace, int(inside[0])) if len(inside) else None
