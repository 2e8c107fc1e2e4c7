"""Many tiny collectives where a few large ones would do.

## What it looks for
Dozens of collectives in a step, each of a few hundred kilobytes at most, that could be one: what
training reduces or gathers, or collectives that follow each other with no kernel between. Where a
layer computes with what each of them brings (tensor parallelism, generating token by token), they
cannot be merged, and it says nothing. Not checked where message sizes were not recorded.

## Why it matters
A small collective costs tens of microseconds on the host and several on each device, whatever it
moves. Bandwidth is never reached.

## How to fix it
Reduce flat buffers or buckets (`DistributedDataParallel` does; `torch._foreach` and
`torch.distributed._coalescing_manager` help by hand).

## When to ignore it
Control messages at rare steps.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.device.collectives import Collectives, collectives
from pinchpoint.analysis.host.frames import acts
from pinchpoint.analysis.replay import AddHostTime, DropDeviceOps, DropSyncs, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import About, NotChecked, Rule
from pinchpoint.trace import DeviceKind, Trace
from pinchpoint.trace.arrays import Mask

RULE = Rule(
    needs=("device_ops", "api_calls"),
    record=CPU_AND_DEVICE,
    about=About.COMMUNICATION,
    confirm='pinchpoint bench ab -- "torchrun train.py" "torchrun train_fixed.py"',
)

FEWEST_CALLS = 32  # a step; the buckets of DDP (25 MB) are 32 only for gradients of 800 MB
PACK_NS = 5_000  # host time to put one tensor into a flat buffer and take it out: two views, eager
SMALL_BYTES = 256 * 1024  # at 100 GB/s under 3 µs, less than the latency of a call

_OF_PARAMETERS = ("allreduce", "reduce_scatter", "allgather", "reduce", "broadcast")


def check(trace: Trace) -> Iterator[Found]:
    """Steps with many small collectives."""
    found, ops = collectives(trace), trace.device_ops
    if found is None or ops is None:
        return
    if per_step(trace, len(found.rows)) >= FEWEST_CALLS and not found.bytes.any():
        raise NotChecked("message sizes are not recorded")
    small = found.rows[(found.bytes > 0) & (found.bytes <= SMALL_BYTES) & _mergeable(trace, found)]
    wanted = np.zeros(len(ops), np.bool_)
    wanted[small] = True
    work = device_work(trace, wanted, "device time of small collectives")
    if work is None or work.count < FEWEST_CALLS:
        return
    host = trace.host_ops
    nowhere = 0 if host is None else len(host)
    around = acts(trace, ops.filled("host_op", nowhere)[small].astype(np.intp))
    first = np.unique(found.step[np.isin(found.rows, small)], return_index=True)[1]
    later = np.setdiff1d(small, small[first])
    called = ops.filled("api_call", -1)[small].astype(np.intp)
    calls = ops["api_call"][later][ops.known("api_call")[later]]
    spent = 0 if host is None else int(host["duration_ns"][around].sum())
    median = float(np.median(found.bytes[np.isin(found.rows, small)]))
    yield Found(
        summary=f"{work.count:.0f} collectives a step move {median / 1024:.0f} KiB each",
        evidence=(
            Evidence("median message", round(median), "bytes"),
            Evidence("host time of them", round(per_step(trace, spent)), "ns per step"),
            *work.evidence,
        ),
        cost_ns_per_step=round(per_step(trace, spent)),
        changes=(
            ScaleHostSpans(around, 1 / work.count),
            DropSyncs(calls),
            DropDeviceOps(later),
            AddHostTime(called[first], round(PACK_NS * work.count)),
        ),
        location=work.place,
        fix="Reduce one flat buffer, or a few buckets",
    )


def _mergeable(trace: Trace, found: Collectives) -> Mask:
    """Collectives of training, or with no kernel since the one before or until the next."""
    ops = trace.device_ops
    assert ops is not None
    if workload(trace).trains:
        return np.isin(found.kind, _OF_PARAMETERS)
    computing = np.sort(ops["start_ns"][ops["kind"] == DeviceKind.KERNEL])
    before = np.searchsorted(computing, ops["start_ns"][found.rows])
    follows = np.append(False, np.diff(before) == 0)
    result: Mask = follows | np.append(follows[1:], False)
    return result
