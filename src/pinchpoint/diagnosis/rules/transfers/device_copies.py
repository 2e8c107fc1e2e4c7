"""Large tensors are copied from one place in the device's memory to another in every step.

## What it looks for
Copies within one device's memory, of 8 MiB or more each, that change neither type nor layout (the
copy engine's: `copy_` and `clone` of tensors that lie alike). They compute nothing: the same values
lie somewhere else afterwards. Buffers of a CUDA graph that are filled before each replay and cloned
after it, state that is handed on by value, and caches that are copied to grow by one entry are the
usual cases. Whether both copies are needed, because one is changed while the other is read later,
is not recorded. It yields to every other finding that explains the same time.

## Why it matters
A copy reads and writes everything: a large cache that is copied in and out costs more than what
reads it.

## How to fix it
Let the one that makes the values write where they are read: bind large tensors of a graph once,
change them in place, swap two buffers instead of copying one over the other, allocate a cache at
its full size.

## When to ignore it
Where both copies are needed: a snapshot, or a tensor that is changed while its old values are
read.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.replay import DropDeviceOps
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_TORCH_CUDA, Rule
from pinchpoint.trace import DeviceKind, MemoryKind, Table, Trace
from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.durations import duration

RULE = Rule(
    needs=("device_ops",),
    record=CPU_AND_DEVICE,
    residual=True,
    advice=NO_TORCH_CUDA,
    confirm='pinchpoint bench ab -- "python train.py" "python train_in_place.py"',
)

LARGE_COPY_BYTES = 8 << 20  # takes 6 µs on an H100, read and written; less is a matter of latency
EACH_STEP_RATIO = 0.5  # of one a step: what comes more rarely is a snapshot, and wanted


def check(trace: Trace) -> Iterator[Found]:
    """Large copies within the device."""
    ops = trace.device_ops
    if ops is None:
        return
    work = device_work(trace, _within(ops), "copies within the device")
    if work is None or work.count < EACH_STEP_RATIO:
        return
    sizes, counts = np.unique(ops["bytes"][work.rows], return_counts=True)
    usual = int(sizes[(sizes * counts).argmax()])
    moved = per_step(trace, int(ops["bytes"][work.rows].sum()))
    where = f" in {work.place}" if work.place else ""
    yield Found(
        summary=(
            f"{work.count:.3g} copies a step move {moved / 1e9:.3g} GB from one place in the"
            f" device's memory to another{where}: {duration(work.ns_per_step)}"
            " of each recorded step"
        ),
        evidence=(
            Evidence("copied within the device", round(moved), "bytes per step"),
            Evidence("bytes of a copy, as most are moved", usual, "bytes"),
            Evidence(
                "copies of that size", round(per_step(trace, int(counts.max())), 1), "per step"
            ),
            *work.evidence,
        ),
        cost_ns_per_step=work.ns_per_step,
        changes=(DropDeviceOps(work.rows),),
        location=work.place,
        fix="Write the values where they are read, instead of copying them there",
        hint="static_cache = cache  # bound once: a graph reads and writes it in place",
        confidence="medium",
    )


def _within(ops: Table) -> Mask:
    inside = ops["kind"] == DeviceKind.COPY
    for end in ("from_memory", "to_memory"):
        inside = inside & (ops.filled(end, 0) == MemoryKind.DEVICE)
    found: Mask = inside & (ops.filled("bytes", 0) >= LARGE_COPY_BYTES)
    return found
