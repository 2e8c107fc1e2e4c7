"""What the device needs lies in host memory and is copied over in each step.

## What it looks for
Dozens of large copies from host to device in each step, whose time is not hidden: weights,
activations or optimizer state that are kept on the host (CPU offload, weight streaming). A gigabyte
a step at least: batches come in a handful of tensors. What the copies hold is inferred, so the
confidence is medium.

Or a dozen and more copies to the host whose sizes all come back in the same step: what the step
itself has made and needs again (saved tensors of `save_on_cpu`, activations between two parts of a
model). Both directions, the waits for them and the page-locked memory for them are one cause.

## Why it matters
The link to the host moves 25 to 60 GB/s, device memory 2 to 8 TB/s. A model that is copied in each
step runs at the pace of the link, however fast the device is.

## How to fix it
Keep it on the device: drop the offloading while memory is free, a smaller data type, fewer layers
offloaded, the model split over more devices, activation checkpointing. Else copy the next layer on
a stream of its own while this one computes, and use each copy for more work (a larger batch).

## When to ignore it
Where the model does not fit any other way, and the copies are already beside the computing.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.replay import DropDeviceOps
from pinchpoint.analysis.steps.in_steps import per_step
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.evidence.round_trips import copies_between, round_trip
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_TORCH_CUDA, Rule
from pinchpoint.trace import DeviceKind, Trace
from pinchpoint.trace.intervals import covered_before, flatten

RULE = Rule(
    needs=("device_ops", "api_calls"),
    record=CPU_AND_DEVICE,
    advice=NO_TORCH_CUDA,
    confirm='pinchpoint bench ab -- "python train.py" "python train_on_device.py"',
)

LARGE_COPY_BYTES = 16 << 20  # a layer's weights; pieces of a batch are smaller, or few
FEWEST_COPIES = 12  # a step: a batch comes in a handful of tensors
LEAST_BYTES = 1 << 30  # a step: 20 ms on PCIe 5; batches are megabytes
EXPOSED_RATIO = 0.5  # of the copies' time: below it they run beside the computing


def check(trace: Trace) -> Iterator[Found]:
    """Many large copies to the device in each step, beside which little is computed."""
    ops = trace.device_ops
    if ops is None:
        return
    there_and_back = list(round_trip(trace))
    if there_and_back:
        yield from there_and_back
        return
    large = copies_between(trace, to_host=False) & (ops.filled("bytes", 0) >= LARGE_COPY_BYTES)
    copies = device_work(trace, large, "large copies to the device")
    if copies is None or copies.count < FEWEST_COPIES:
        return
    size = ops["bytes"][copies.rows].astype(np.int64)
    moved = per_step(trace, int(size.sum()))
    exposed = _exposed_ns(trace, copies.rows)
    took = ops["duration_ns"][copies.rows]
    if moved < LEAST_BYTES or exposed < EXPOSED_RATIO * int(took.sum()):
        return
    yield Found(
        summary=(
            f"{moved / 1e9:.3g} GB are copied from host memory to the device in each step,"
            f" in {copies.count:.0f} pieces, and little is computed meanwhile"
        ),
        evidence=(
            Evidence("copied to the device", round(moved), "bytes per step"),
            Evidence("rate of one copy", round(float(np.median(size / took)) * 1e9), "bytes/s"),
            *copies.evidence,
        ),
        cost_ns_per_step=round(per_step(trace, exposed)),
        changes=(DropDeviceOps(copies.rows),),
        location=copies.place,
        confidence="medium",
        fix="Keep it on the device if it fits, in a smaller type or over more devices; else copy"
        " the next layer on a side stream while this one computes",
        hint="with torch.cuda.stream(side): layer.to(device, non_blocking=True)",
    )


def _exposed_ns(trace: Trace, copies: np.ndarray) -> int:
    """Time of the copies in which their device computes nothing."""
    ops = trace.device_ops
    assert ops is not None
    device, total = ops["device"], 0
    for one in np.unique(device[copies]).tolist():
        mine = copies[device[copies] == one]
        computes = (device == one) & (ops["kind"] == DeviceKind.KERNEL)
        busy = flatten(ops["start_ns"][computes], ops.end_ns[computes])
        start, end = ops["start_ns"][mine], ops.end_ns[mine]
        hidden = covered_before(busy, end) - covered_before(busy, start)
        total += int((end - start - hidden).sum())
    return total
