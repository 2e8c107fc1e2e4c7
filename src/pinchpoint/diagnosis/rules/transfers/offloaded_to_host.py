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
offloaded, the model split over more devices, activation checkpointing. Else copy the next layer on a stream of its own while this one computes, and use each copy
for more work (a larger batch).

## When to ignore it
Where the model does not fit any other way, and the copies are already beside the computing.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.host.ancestry import above, nearest, parents, subtree_sums
from pinchpoint.analysis.host.attribution import backward_nodes, launched_count
from pinchpoint.analysis.host.frames import Owner, owners
from pinchpoint.analysis.host.input_arguments import parsed
from pinchpoint.analysis.replay import Change, DropDeviceOps, DropSyncs, ScaleHostSpans
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step, rows_in_steps
from pinchpoint.analysis.tables.transfers import blocked_ns
from pinchpoint.diagnosis.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import CPU_AND_DEVICE
from pinchpoint.diagnosis.rule import NO_TORCH_CUDA, Rule
from pinchpoint.trace import ApiKind, DeviceKind, HostKind, MemoryKind, Trace
from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.durations import duration
from pinchpoint.trace.intervals import covered_before, flatten
from pinchpoint.trace.names import rows_named

RULE = Rule(needs=("device_ops", "api_calls"), record=CPU_AND_DEVICE, advice=NO_TORCH_CUDA)

LARGE_COPY_BYTES = 16 << 20  # a layer's weights; pieces of a batch are smaller, or few
FEWEST_COPIES = 12  # a step: a batch comes in a handful of tensors
LEAST_BYTES = 1 << 30  # a step: 20 ms on PCIe 5; batches are megabytes
EXPOSED_RATIO = 0.5  # of the copies' time: below it they run beside the computing


def check(trace: Trace) -> Iterator[Found]:
    """Many large copies to the device in each step, beside which little is computed."""
    ops = trace.device_ops
    if ops is None:
        return
    there = _there_and_back(trace)
    if there is not None:
        yield from _round_trip(trace, *there)
        return
    large = _copies(trace, to_host=False) & (ops.filled("bytes", 0) >= LARGE_COPY_BYTES)
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
        confirm='pinchpoint bench ab -- "python run.py" "python run_on_device.py"',
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


def _copies(trace: Trace, *, to_host: bool) -> Mask:
    """Copies between host and device in one direction."""
    ops = trace.device_ops
    assert ops is not None
    on_host, on_device = ("to_memory", "from_memory") if to_host else ("from_memory", "to_memory")
    of_host = (MemoryKind.PAGEABLE, MemoryKind.PINNED, MemoryKind.HOST)
    found: Mask = np.isin(ops.filled(on_host, 0), of_host)
    return found & (ops.filled(on_device, 0) == MemoryKind.DEVICE)


# ------------------------------------------------------------------------------------------------
# What goes to the host and comes back in the same step.

# Of the bytes that go to the host: results, metrics and checkpoints do not come back.
COME_BACK_RATIO = 0.9
# A step, each way: 1 ms on PCIe 5. Results that come back by chance are scalars and small tables.
LEAST_THERE_BYTES = 50_000_000


def _there_and_back(trace: Trace) -> tuple[Rows, Rows] | None:
    """Rows of ``device_ops`` that go to the host, and as many of the same sizes that come back."""
    ops = trace.device_ops
    assert ops is not None
    size = ops.filled("bytes", 0).astype(np.int64)
    mine = device_ops_in_steps(trace) & (size > 0)
    down = np.flatnonzero(mine & _copies(trace, to_host=True))
    up = np.flatnonzero(mine & _copies(trace, to_host=False))
    if not len(down) or not len(up):
        return None
    number, order = _nth_of_its_size(size[down]), _nth_of_its_size(size[up])
    goes = np.isin(_pairs(size[down], number), _pairs(size[up], order))
    comes = np.isin(_pairs(size[up], order), _pairs(size[down], number))
    back = int(size[down[goes]].sum())
    enough = per_step(trace, int(goes.sum())) >= FEWEST_COPIES
    enough &= per_step(trace, back) >= LEAST_THERE_BYTES
    return (down[goes], up[comes]) if enough and back >= COME_BACK_RATIO * size[down].sum() else None


def _nth_of_its_size(size: np.ndarray) -> np.ndarray:
    """How many of the same size come before each."""
    order = np.argsort(size, kind="stable")
    first = np.searchsorted(size[order], size[order], "left")
    out = np.empty(len(size), np.int64)
    out[order] = np.arange(len(size)) - first
    return out


def _pairs(size: np.ndarray, number: np.ndarray) -> np.ndarray:
    return size + 1j * number


def _round_trip(trace: Trace, down: Rows, up: Rows) -> Iterator[Found]:
    ops = trace.device_ops
    assert ops is not None
    both = np.zeros(len(ops), np.bool_)
    both[down], both[up] = True, True
    copies = device_work(trace, both, "device time of both")
    assert copies is not None
    going = np.zeros(len(ops), np.bool_)
    going[down] = True
    out = device_work(trace, going, "to the host")
    moved = per_step(trace, int(ops["bytes"][down].astype(np.int64).sum()))
    waited = round(per_step(trace, int(blocked_ns(trace)[copies.rows].sum())))
    what = "Saved tensors go" if _in_backward(trace, up) else "Tensors go"
    yield Found(
        summary=(
            f"{what} to the host and come back in the same step: {moved / 1e9:.3g} GB each way, in"
            f" {copies.count:.0f} copies, {duration(copies.ns_per_step)} of the device and"
            f" {duration(waited)} of the host that waits for them"
        ),
        evidence=(
            Evidence("copied to the host and back", round(moved), "bytes per step"),
            *copies.evidence,
            Evidence("host blocked in them", waited, "ns per step"),
        ),
        cost_ns_per_step=copies.ns_per_step,
        changes=_none_of_it(trace, copies.rows),
        location=out.place if out else copies.place,
        fix="Keep them on the device while memory is free; else offload fewer of them, or compute"
        " them again (activation checkpointing)",
        confirm='pinchpoint bench ab -- "python run.py" "python run_on_device.py"',
    )


def _in_backward(trace: Trace, rows: Rows) -> bool:
    """Whether most of these device operations come from the backward pass."""
    host, ops = trace.host_ops, trace.device_ops
    if host is None or ops is None or not len(host):
        return False
    inside = nearest(parents(host), backward_nodes(trace)) < len(host)
    found = np.append(inside, False)[ops.filled("host_op", len(host))[rows]]
    return bool(2 * found.sum() > len(rows))


def _none_of_it(trace: Trace, copies: Rows) -> tuple[Change, ...]:
    """Without the copies, the operators that make them, waits inside these, and their memory."""
    host, calls, ops = trace.host_ops, trace.api_calls, trace.device_ops
    assert ops is not None
    if host is None or calls is None or not len(host):
        return (DropDeviceOps(copies),)
    acts = _nothing_but(trace, copies) | _page_locked(trace)
    inside = np.append(nearest(parents(host), acts) < len(host), False)
    waits = np.isin(calls["kind"], _SYNCS) & inside[calls.filled("host_op", len(host))]
    outermost = acts & (above(parents(host), acts) == len(host))
    return (
        DropSyncs(np.flatnonzero(waits)),
        DropDeviceOps(copies),
        ScaleHostSpans(np.flatnonzero(outermost & rows_in_steps(trace, host)), 0.0),
    )


_SYNCS = (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM, ApiKind.SYNC_EVENT)


def _nothing_but(trace: Trace, copies: Rows) -> Mask:
    """Operators and functions of the framework whose device work is these copies and no other."""
    host, ops = trace.host_ops, trace.device_ops
    assert host is not None
    assert ops is not None
    chosen = np.zeros(len(ops), np.bool_)
    chosen[copies] = True
    every = subtree_sums(parents(host), launched_count(trace))
    mine = subtree_sums(parents(host), launched_count(trace, chosen))
    kinds = (HostKind.OPERATOR, HostKind.PYTHON)
    theirs = np.isin(host["kind"], kinds) & (owners(trace) != Owner.USER)
    result: Mask = theirs & (mine > 0) & (mine == every)
    return result


_PIN_AT = 4  # argument of aten::empty: size, type, layout, device, pin_memory


def _page_locked(trace: Trace) -> Mask:
    """Operators that get page-locked memory."""
    host = trace.host_ops
    assert host is not None
    found = rows_named(trace, host, lambda name: name == "aten::empty") & host.known("values")
    for row in np.flatnonzero(found).tolist():
        given = parsed(trace.text(host, "values", row) or "") or ()
        found[row] = len(given) > _PIN_AT and given[_PIN_AT] == "True"
    return found
