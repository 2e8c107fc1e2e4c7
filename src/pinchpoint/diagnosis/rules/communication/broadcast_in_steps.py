"""The same tensors are sent to all ranks in each step.

## What it looks for
Broadcasts inside the steps beside which this rank computes nothing, above all those of
`DistributedDataParallel`, which by default sends every buffer of the module from rank 0 before each
forward pass (`broadcast_buffers=True`): statistics of normalisation, but also tables, memory banks,
masks and moving averages that were registered as buffers. A rank that comes early waits inside, so
of each call only as much counts as the shortest with a message of its size took. Where sizes were
not recorded, waiting and transfer cannot be told apart, and it is not checked.

## Why it matters
The forward pass waits for the whole transfer. It is needed only where ranks would otherwise compute
with different values.

## How to fix it
`DistributedDataParallel(model, broadcast_buffers=False)` where all ranks compute the same buffers,
or where each may keep its own (statistics of its own batches); else keep large tensors that ranks
update alike out of the module's buffers, or send what changed. Weights and settings that do not
change are sent once, before the loop.

## When to ignore it
Where the values are new in each step and only one rank has them.
"""

from collections.abc import Iterator
from math import ceil

import numpy as np

from pinchpoint.analysis.device.collectives import Collectives, collectives
from pinchpoint.analysis.host.ancestry import parents, within
from pinchpoint.analysis.replay import DropDeviceOps
from pinchpoint.analysis.replay.least_step import device_ns
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_HINT, About, NotChecked, Rule
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Floats, Mask, Rows
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops", "api_calls"),
    record=CPU_AND_DEVICE,
    about=About.COMMUNICATION,
    advice=NO_HINT,
    confirm='pinchpoint bench ab -- "torchrun train.py" "torchrun train_fixed.py"',
)

# The shortest of a few calls may have waited a little, too: two H200 won 14.3 ms of the 16.5 that
# the shortest broadcasts of a recording took.
LEAST_WON_RATIO = 0.75
_OF_BUFFERS = ("_sync_buffers", "_sync_module_buffers")


def check(trace: Trace) -> Iterator[Found]:
    """Broadcasts of the steps that nothing hides."""
    found, ops = collectives(trace), trace.device_ops
    if found is None or ops is None or not (sent := found.kind == "broadcast").any():
        return
    if not (found.bytes[sent] > 0).all():
        raise NotChecked("message sizes are not recorded: waiting looks like transfer")
    wanted = np.zeros(len(ops), np.bool_)
    wanted[found.rows[sent]] = True
    work = device_work(trace, wanted, "broadcasts, waiting included")
    if work is None:
        return
    moving_ns = np.minimum(found.exposed_ns, _shortest_ns(found, sent))[sent]
    exposed_ns = round(per_step(trace, float(moving_ns.sum())))
    largest = int(found.bytes[sent].max())
    of_buffers = _of_buffers(trace, found.rows[sent][found.bytes[sent] == largest])
    a_step = round(per_step(trace, int(found.bytes[sent].sum())))
    yield Found(
        summary=(
            f"{_who(of_buffers)} {a_step / 1e9:.3g} GB to all ranks in each step,"
            f" {duration(exposed_ns)} in which nothing is computed"
        ),
        evidence=(
            Evidence("exposed transfer", exposed_ns, "ns per step"),
            Evidence("sent", a_step, "bytes per step"),
            Evidence("largest message", largest, "bytes"),
            *work.evidence,
        ),
        cost_ns_per_step=exposed_ns,
        saving_ns_per_step=(round(LEAST_WON_RATIO * exposed_ns), exposed_ns),
        leaves_ns_per_step=ceil(device_ns(trace, (DropDeviceOps(found.rows),))),
        location=work.place,
        fix=_FIX_OF_BUFFERS if of_buffers else _FIX,
        hint=_HINT_OF_BUFFERS if of_buffers else "",
    )


_FIX_OF_BUFFERS = (
    "Pass broadcast_buffers=False where all ranks compute the same buffers or may keep their own;"
    " else keep large tensors out of the module's buffers, or send what changed"
)
_HINT_OF_BUFFERS = "model = DistributedDataParallel(model, broadcast_buffers=False)"
_FIX = "Send it once, before the loop, or only what changed"


def _who(of_buffers: bool) -> str:
    return "DistributedDataParallel sends buffers of" if of_buffers else "Broadcasts send"


def _of_buffers(trace: Trace, rows: Rows) -> bool:
    """Whether the wrapper launched them for the module's buffers: its own functions are around
    them, or where no functions are recorded, its forward pass."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None:
        return False
    words = (*_OF_BUFFERS, "DistributedDataParallel.forward")
    named = np.array([any(word in name for word in words) for name in trace.names], np.bool_)
    inside = within(parents(host), named[host["name"]])
    result: Mask = inside[ops.filled("host_op", len(host))[rows]]
    return bool(result.all())


def _shortest_ns(found: Collectives, sent: Mask) -> Floats:
    """What the shortest broadcast with a message of its size took; of others, what they took."""
    least = found.duration_ns.astype(np.float64)
    for each in np.unique(found.bytes[sent]).tolist():
        alike = sent & (found.bytes == each)
        least[alike] = least[alike].min()
    return least
