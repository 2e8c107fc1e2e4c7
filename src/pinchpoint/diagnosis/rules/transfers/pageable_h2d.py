"""Large copies to the device start from ordinary host memory.

## What it looks for
Copies of kind pageable → device that are large, with their rate, against what page-locked memory
reaches on the same kind of link. The kind of memory is recorded for each copy; where the rate is
already that of page-locked memory there is nothing to win. Where no steps are seen, dozens of
copies in a row, with no kernel between them, are a model's parameters, placed once.

## Why it matters
The driver has to copy such data into a page-locked buffer piece by piece on the CPU, and the call
returns only when that is done: the copy is several times slower, and the host is blocked in it.

## How to fix it
Let the loader pin its batches (`pin_memory=True`) and copy with `non_blocking=True`; or pin a
buffer once and reuse it.

## When to ignore it
Small copies, and copies outside the loop.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.replay import DropSyncs, ScaleDeviceOps
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import DEVICE
from pinchpoint.diagnosis.rule import NO_KNOB, Rule
from pinchpoint.trace import ApiKind, DeviceKind, MemoryKind, Table, Trace
from pinchpoint.trace.arrays import Mask, Rows, distinct

RULE = Rule(
    needs=("device_ops",),
    record=DEVICE,
    knobs=("pin_memory",),
    advice=NO_KNOB,
    confirm="pinchpoint try --knob pin_memory -- python train.py",
)

MOST_OF_A_BATCH = 16  # tensors; models have some hundred parameters
LARGE_COPY_BYTES = 1 << 20  # below this the fixed cost of a call outweighs the rate
PINNED_BYTES_PER_S = 50e9  # PCIe 5 x16, measured 50 to 55 GB/s on H100 hosts; PCIe 4 about 25e9


def check(trace: Trace) -> Iterator[Found]:
    """Large pageable copies to the device inside the steps."""
    ops = trace.device_ops
    if ops is None:
        return
    size = ops.filled("bytes", 0)
    pageable = ops.filled("from_memory", 0) == MemoryKind.PAGEABLE
    large = pageable & (size >= LARGE_COPY_BYTES)
    if steps(trace).how == "none":
        large &= ~_in_a_long_row(ops, large)
    copies = device_work(trace, large, "time of pageable copies")
    if copies is None:
        return
    moved = per_step(trace, int(size[copies.rows].sum()))
    rate = moved / max(copies.ns_per_step, 1) * 1e9
    if rate >= PINNED_BYTES_PER_S:
        return
    yield Found(
        summary=(
            f"{moved / 1e6:.0f} MB a step are copied to the device from pageable memory"
            f" at {rate / 1e9:.1f} GB/s"
        ),
        evidence=(Evidence("rate", round(rate), "bytes/s"), *copies.evidence),
        cost_ns_per_step=copies.ns_per_step,
        changes=(
            ScaleDeviceOps(copies.rows, rate / PINNED_BYTES_PER_S),
            DropSyncs(_waiting_calls(trace, copies.rows)),
        ),
        location=copies.place,
        fix="Pin the batch in the loader and copy it with non_blocking=True",
        hint="DataLoader(..., pin_memory=True); x = x.to(device, non_blocking=True)",
    )


def _in_a_long_row(ops: Table, copies: Mask) -> Mask:
    """Copies to one device among more than a batch has, between which it runs no kernel."""
    kernel = np.isin(ops["kind"], (DeviceKind.KERNEL, DeviceKind.COLLECTIVE))
    long = np.zeros(len(ops), np.bool_)
    for device in distinct(ops["device"][copies]).tolist():
        mine = ops["device"] == device
        rows = np.flatnonzero(copies & mine)
        begins = np.sort(ops["start_ns"][kernel & mine])
        before = np.searchsorted(begins, ops["start_ns"][rows])
        _, which, size = np.unique(before, return_inverse=True, return_counts=True)
        long[rows] = size[which] > MOST_OF_A_BATCH
    return long


def _waiting_calls(trace: Trace, rows: Rows) -> Rows:
    """The copies' own calls, and the synchronisations of the same operators."""
    ops, calls = trace.device_ops, trace.api_calls
    assert ops is not None
    if calls is None:
        return np.zeros(0, np.intp)
    own = ops["api_call"][rows][ops.known("api_call")[rows]]
    operators = calls["host_op"][own][calls.known("host_op")[own]]
    same = np.isin(calls["host_op"], operators) & calls.known("host_op")
    syncs = same & np.isin(calls["kind"], (ApiKind.SYNC_STREAM, ApiKind.SYNC_DEVICE))
    return np.union1d(own, np.flatnonzero(syncs))
