"""Metrics are computed on the host, from tensors copied there in each step.

## What it looks for
Copies of more than a few values to the host that the host waits for, with numeric work on the CPU
after them (numeric packages, operators on CPU tensors), in the same function of the program or in
one that it calls; the device idles meanwhile. A copy that nothing is computed with is
`large-d2h-copies`, and work whose result is written to a file `heavy-logging`.

## Why it matters
The copy waits for all queued work, the CPU computes what the device would do in microseconds, and
nothing is launched until it is done.

## How to fix it
Keep the state of the metric on the device (sums, counts, a confusion matrix), update it there, and
read the result at the end of an epoch.

## When to ignore it
In evaluation at rare steps.
"""

from collections.abc import Iterator

from pinchpoint.analysis.time.host_waits import WaitReason
from pinchpoint.diagnosis.finding import Found
from pinchpoint.diagnosis.record import STACKS_WITH_DEVICE
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.diagnosis.rules.synchronising._host_work_after_copy import host_work_after_copy
from pinchpoint.trace import Trace

RULE = Rule(
    needs=("host_ops", "api_calls", "device_ops"),
    record=STACKS_WITH_DEVICE,
    parent="large-d2h-copies",
)


def check(trace: Trace) -> Iterator[Found]:
    """Large copies to the host inside the steps and what the host does with them."""
    work = host_work_after_copy(trace, WaitReason.COPY_TO_HOST)
    if work is None:
        return
    yield Found(
        summary=(
            f"{work.bytes_per_step / 1e6:.3g} MB a step are copied to the host and worked on"
            f" there{work.where}"
        ),
        evidence=work.evidence,
        cost_ns_per_step=work.ns_per_step,
        changes=work.dropped,
        location=work.place,
        fix="Compute it on the device and read only the result, at the end",
    )
