"""Collectives run when computing is over.

## What it looks for
Collectives of a training step during which this rank computes nothing, though they could have run
beside the backward pass.

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

from pinchpoint.analysis.device.collectives import collectives
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.time.accounting import breakdown
from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, About, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops", "api_calls"),
    record=CPU_AND_DEVICE,
    about=About.COMMUNICATION,
    advice=NO_HINT,
)

# fitted: training on two H100. Of what is exposed, overlap won 25 % where it was measured (TF32);
# less where memory is the limit, more with few units given to the collectives.
LEAST_WON_RATIO, MOST_WON_RATIO = 0.08, 0.6


def check(trace: Trace) -> Iterator[Found]:
    """Exposed collectives of training steps."""
    found, ops = collectives(trace), trace.device_ops
    if found is None or ops is None or not workload(trace).trains:
        return
    wanted = np.zeros(len(ops), np.bool_)
    wanted[found.rows[found.exposed_ns > found.duration_ns // 2]] = True
    work = device_work(trace, wanted, "collectives beside which nothing is computed")
    if work is None:
        return
    exposed = round(per_step(trace, int(found.exposed_ns.sum())))
    if typical := breakdown(trace).of_part(
        "exposed-communication"
    ):  # not more than the step that is shown has
        exposed = min(exposed, typical)
    yield Found(
        summary=f"Collectives take {duration(exposed)} of each step while nothing is computed",
        evidence=(Evidence("exposed communication", exposed, "ns per step"), *work.evidence),
        cost_ns_per_step=exposed,
        saving_ns_per_step=(round(LEAST_WON_RATIO * exposed), round(MOST_WON_RATIO * exposed)),
        location=work.place,
        fix="Reduce gradients in buckets during backward",
        hint="model = DistributedDataParallel(model, gradient_as_bucket_view=True)",
        confirm='pinchpoint bench ab -- "torchrun train.py" "torchrun train_ddp.py"',
    )
