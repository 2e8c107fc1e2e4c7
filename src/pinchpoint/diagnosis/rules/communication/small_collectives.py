"""Many tiny collectives where a few large ones would do.

## What it looks for
Dozens of collectives in a step, each of a few hundred kilobytes at most, that could be one: what
training reduces or gathers, or collectives that follow each other with no kernel between. Where a
layer computes with what each of them brings (tensor parallelism, generating token by token), they
cannot be merged, and it says nothing. Not checked where message sizes were not recorded.
Of a program on CPUs the same of the backend's collectives (gloo, MPI): those for which the thread
of the steps waits, with no product of matrices and no value read between one and the next, or of
gradients as the backward pass adds them up. What large messages would take in any case is left.

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
from pinchpoint.analysis.host.ancestry import parents, within
from pinchpoint.analysis.host.frames import acts
from pinchpoint.analysis.host.on_cpu import computes_on_cpu
from pinchpoint.analysis.replay import (
    AddHostTime,
    DropDeviceOps,
    DropSyncs,
    RemoveHostTime,
    ScaleHostSpans,
)
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.work.workload import workload
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.host_collectives import HostCalls, host_calls
from pinchpoint.diagnosis.evidence.host_spans import host_spans, named
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import About, NotChecked, Rule
from pinchpoint.trace import DeviceKind, HostKind, Trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("host_ops",),
    record=CPU_AND_DEVICE,
    about=About.COMMUNICATION,
    parent="host-waits",
    confirm='pinchpoint bench ab -- "torchrun train.py" "torchrun train_fixed.py"',
)

FEWEST_CALLS = 32  # a step; the buckets of DDP (25 MB) are 32 only for gradients of 800 MB
PACK_NS = 5_000  # host time to put one tensor into a flat buffer and take it out: two views, eager
SMALL_BYTES = 256 * 1024  # at 100 GB/s under 3 µs, less than the latency of a call

_OF_PARAMETERS = ("allreduce", "reduce_scatter", "allgather", "reduce", "broadcast")


def check(trace: Trace) -> Iterator[Found]:
    """Steps with many small collectives."""
    if computes_on_cpu(trace):
        yield from _of_the_host(trace)
        return
    found, ops = collectives(trace), trace.device_ops
    if ops is None or trace.api_calls is None:
        raise NotChecked("no device activity was recorded")
    if found is None:
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
        summary=f"{work.count:.0f} collectives a step move {_size(median)} each",
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


def _size(size_bytes: float) -> str:
    return f"{size_bytes:.0f} bytes" if size_bytes < 1024 else f"{size_bytes / 1024:.0f} KiB"


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


# Of gloo's and MPI's, each of which puts an underscore where NCCL's kernels have none.
_BY_HOST = (*_OF_PARAMETERS, "all_reduce", "all_gather", "_all_gather_base", "_reduce_scatter_base")
_COMPUTES = (
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "convolution",
    "convolution_backward",
    "mkldnn_linear",
)
_LAYER = {f"aten::{name}" for name in _COMPUTES}
_READS = "aten::_local_scalar_dense"  # a value of which the next call may depend
_ADDS_UP = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
SURE_RATIO = 0.5  # a judgement: the rest may be waiting for a rank that is late
USUAL_NS_PER_BYTE = 1.0  # of a link of 10 Gbit/s
MOST_LEFT_RATIO = 0.7  # of their time: what moves data for most of it gains little in one call


def _of_the_host(trace: Trace) -> Iterator[Found]:
    host, found = trace.host_ops, host_calls(trace, _BY_HOST)
    if host is None or found is None or per_step(trace, len(found.rows)) < FEWEST_CALLS:
        return
    if (found.bytes < 0).any():
        raise NotChecked("message sizes are not recorded")
    found = found.of((found.bytes <= SMALL_BYTES) & _follow_each_other(trace, found))
    count = per_step(trace, len(found.rows))
    if count < FEWEST_CALLS:
        return
    left = max(1 / count, _left_ratio(trace, found))
    if left > MOST_LEFT_RATIO:
        return
    alone = found.alone_ns
    won = np.maximum(alone - np.maximum((alone * left).astype(np.int64), PACK_NS), 0)
    end, lost = host.end_ns[found.rows], round(per_step(trace, int(alone.sum())))
    median = float(np.median(found.bytes))
    around = named(trace, lambda name: name.startswith("c10d::"))
    place = host_spans(trace, around, "operators that issue collectives")
    at = int(found.rows[0])
    yield Found(
        summary=f"{count:.0f} collectives a step move {median / 1024:.3g} KiB each, and the program"
        f" waits {duration(lost)} a step for them",
        evidence=(
            Evidence("median message", round(median), "bytes"),
            Evidence("in all", round(per_step(trace, int(found.bytes.sum()))), "bytes per step"),
            Evidence(
                "their time beside no operator",
                lost,
                "ns per step",
                int(host["start_ns"][at]),
                trace.text(host, "name", at),
            ),
        ),
        cost_ns_per_step=lost,
        changes=(RemoveHostTime(end - (won * SURE_RATIO).astype(np.int64), end),),
        at_best=(RemoveHostTime(end - won, end),),
        location=None if place is None else place.place,
        fix="Reduce one flat buffer, or a few buckets",
    )


def _left_ratio(trace: Trace, found: HostCalls) -> float:
    """Of their time, what moving all of it would take: by how much longer the quickest large one
    took than the quickest small one; where all are alike, at a usual rate."""
    host = trace.host_ops
    assert host is not None
    took, sizes = host["duration_ns"][found.rows].astype(np.float64), found.bytes
    least, most = int(sizes.min()), int(sizes.max())
    ns_per_byte = USUAL_NS_PER_BYTE
    if most > least:
        longer = took[sizes == most].min() - took[sizes == least].min()
        ns_per_byte = max(float(longer) / (most - least), 0.0)
    return ns_per_byte * float(sizes.sum()) / max(float(took.sum()), 1.0)


def _follow_each_other(trace: Trace, found: HostCalls) -> Mask:
    """Calls with no layer computed and no value read since the one before, or until the next; and
    those that hooks issue as gradients are added up, which nobody needs before the step's end."""
    host = trace.host_ops
    assert host is not None
    mine = host["thread"] == steps(trace).thread
    parts = named(trace, lambda name: name in _LAYER or name == _READS) & mine
    begins = np.sort(host["start_ns"][parts & (host["kind"] == HostKind.OPERATOR)])
    start = host["start_ns"][found.rows]
    before = np.searchsorted(begins, start)
    follows = np.append(False, (np.diff(before) == 0) & (np.diff(found.step) == 0))
    mergeable: Mask = follows | np.append(follows[1:], False)
    issued = named(trace, lambda name: name.startswith("c10d::")) & mine
    rows = np.flatnonzero(issued)
    hooked = within(parents(host), named(trace, lambda name: name == _ADDS_UP))[rows]
    last = np.searchsorted(host["start_ns"][rows], start, "right") - 1
    if len(rows):
        mergeable |= (last >= 0) & hooked[np.maximum(last, 0)]
    return mergeable
