"""Collectives run when computing is over.

## What it looks for
Reductions and gathers of a training step during which this rank computes nothing, though they could
have run beside the backward or forward pass. All-to-alls are no such thing: the next layer needs
what they bring.

A rank that comes early waits inside its collective, and overlapping wins none of that. So of each
call only as much counts as its message takes at half of the best rate that this recording shows for
any. Nor does a call count that was ready while this rank still computed, and only waited for those
before it: it is overlapped already, and what holds it up is a late rank or the link. Where message
sizes were not recorded, waiting and transfer cannot be told apart, and it is not checked.

## Why it matters
Gradients of the last layers are ready long before those of the first. Reducing them meanwhile hides
most of the transfer. How much that wins is uncertain from one recording: collectives and kernels
share the device's units and memory, so kernels beside a collective run slower.

## How to fix it
Let `DistributedDataParallel` or FSDP reduce in buckets during backward, in place of a loop of
`all_reduce` after it.

## When to ignore it
Where other ranks are late: then waiting, not transfer, is exposed (straggler-rank).
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.device.collectives import Collectives, collectives
from pinchpoint.analysis.ranks.collective_calls import computing, ready
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, About, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration
from pinchpoint.trace.intervals import covered_before

RULE = Rule(
    needs=("device_ops", "api_calls"),
    record=CPU_AND_DEVICE,
    about=About.COMMUNICATION,
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "torchrun train.py" "torchrun train_ddp.py"',
)

# fitted: training on two H100. Of what is exposed, overlap won 25 % where it was measured (TF32);
# less where memory is the limit, more with few units given to the collectives.
LEAST_WON_RATIO, MOST_WON_RATIO = 0.08, 0.6

# Of the best rate in the recording: smaller messages reach less, and links are shared now and then.
SLOWEST_RATIO = 0.5
CALL_NS = 50_000  # what a collective takes whatever it moves, between hosts

_DEFERRABLE = ("allreduce", "reduce_scatter", "allgather", "reduce")


def check(trace: Trace) -> Iterator[Found]:
    """Exposed collectives of training steps."""
    found, ops = collectives(trace), trace.device_ops
    if found is None or ops is None or not workload(trace).trains:
        return
    wanted = np.zeros(len(ops), np.bool_)
    mine = np.isin(found.kind, _DEFERRABLE)
    if not mine.any():
        return
    if not (found.bytes[mine] > 0).all():
        raise NotChecked("message sizes are not recorded: waiting looks like transfer")
    wanted[found.rows[mine & (found.exposed_ns > found.duration_ns // 2)]] = True
    work = device_work(trace, wanted, "collectives beside which nothing is computed")
    if work is None:
        return
    late = mine & ~_begun_beside_work(trace, found)
    moving = np.minimum(found.exposed_ns, _transfer_ns(found))[late]
    exposed = round(per_step(trace, int(moving.sum())))
    if typical := breakdown(trace).of_part(
        "exposed-communication"
    ):  # not more than the step that is shown has
        exposed = min(exposed, typical)
    yield Found(
        summary=(
            f"Collectives take {duration(exposed)} of each recorded step while nothing is computed"
        ),
        evidence=(Evidence("exposed communication", exposed, "ns per step"), *work.evidence),
        cost_ns_per_step=exposed,
        saving_ns_per_step=(round(LEAST_WON_RATIO * exposed), round(MOST_WON_RATIO * exposed)),
        location=work.place,
        fix="Reduce gradients in buckets during backward",
        hint="model = DistributedDataParallel(model, gradient_as_bucket_view=True)",
    )


def _begun_beside_work(trace: Trace, found: Collectives) -> NDArray[np.bool_]:
    """Calls that were ready while something was computed, and had to wait for those before them."""
    assert trace.device_ops is not None
    busy, start = computing(trace), trace.device_ops["start_ns"][found.rows]
    since = covered_before(busy, start) - covered_before(busy, ready(trace, found.rows))
    begun: NDArray[np.bool_] = since > CALL_NS
    return begun


def _transfer_ns(found: Collectives) -> NDArray[np.float64]:
    """The most that each message needs for itself; what a call takes beyond it is waiting."""
    rate = found.bytes / np.maximum(found.duration_ns, 1)
    best = float(rate.max(initial=0.0))
    return CALL_NS + found.bytes / max(best * SLOWEST_RATIO, 1e-9)
