"""Another process uses the device.

## What it looks for
Launches of one kernel, alike in name, grid, block and input shapes, of which some take a whole time
slice of the device longer than the others. With a run folder also the processes that the driver
saw on the device: if there are others than the recorded ones, launches need not be known by shape.

## Why it matters
Processes without MPS take turns on a device, a few milliseconds each. Own kernels are stretched by
the turns of the others, and nothing in the own program explains it.

## How to fix it
Find the other process (`nvidia-smi`), move it, or share on purpose with MPS or MIG.

## When to ignore it
Where sharing is intended.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.run.facts import ranks_on_device
from pinchpoint.analysis.run.telemetry import device_looks
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.diagnosis.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found
from pinchpoint.diagnosis.record import Need, Record
from pinchpoint.diagnosis.rule import Rule
from pinchpoint.trace import DeviceKind, Trace
from pinchpoint.trace.arrays import Mask, distinct_rows

RULE = Rule(
    needs=("device_ops",),
    record=Record(
        "device activity with shapes (record_shapes=True), or a run folder: pinchpoint run",
        Need.RECORD_SHAPES,
        Record("device activity with shapes, or a run folder: pinchpoint run", Need.DEVICE),
    ),
    periodic=True,  # where steps are short, a turn of another process falls into some of them
)

LEAST_SLICE_NS = 500_000  # a turn of another process: time slices are 1 to 6 ms on NVIDIA devices
STRETCHED_RATIO = 3.0  # against the usual duration of the same launch
FEWEST_ALIKE = 16  # launches, for a median that a few stretched ones do not move
# Of the device time; a neighbour that computes all the time takes about half.
LEAST_LOST_RATIO = 0.15


def check(trace: Trace) -> Iterator[Found]:
    """Kernels that lose the device for a time slice."""
    ops = trace.device_ops
    if ops is None:
        return
    others = _others(trace)
    usual, alike = _usual(trace, with_shapes=not others)
    took = ops["duration_ns"]
    lost = took - usual
    stretched = alike & (lost >= LEAST_SLICE_NS) & (took >= STRETCHED_RATIO * usual)
    work = device_work(trace, stretched, "kernels that were stretched")
    inside = alike & device_ops_in_steps(trace)
    if work is None or len(work.rows) < 3:
        return
    gone = int(lost[work.rows].sum())
    if gone < LEAST_LOST_RATIO * int(took[inside].sum()):
        return
    ratio = float(usual[work.rows].sum() / took[work.rows].sum())
    yield Found(
        summary=(
            f"{work.count:.3g} kernels a step lose the device for"
            f" {np.median(lost[work.rows]) / 1e6:.1f} ms each: another process takes turns on it"
        ),
        evidence=(
            Evidence("lost to others", round(per_step(trace, gone)), "ns per step"),
            Evidence("usual duration of the same launch", int(np.median(usual[work.rows])), "ns"),
            *((Evidence("other processes on the device", others, "count"),) if others else ()),
            *work.evidence,
        ),
        cost_ns_per_step=round(per_step(trace, gone)),
        changes=(ScaleDeviceOps(work.rows, ratio),),
        location=work.place,
        confidence="high" if others else "medium",
        fix="Find the other process on the device and move it, or share with MPS",
        hint="nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
        confirm="pinchpoint monitor --once --json  # while it runs: processes of the device",
    )


def _others(trace: Trace) -> int:
    """Processes on the device beside the recorded ones, by the driver's count; 0: none seen."""
    looks = device_looks(trace).get(trace.devices[0].number if trace.devices else 0)
    if looks is None:
        return 0
    most = looks.most("process_count")
    return 0 if most is None else max(0, int(most) - ranks_on_device(trace))


def _usual(trace: Trace, *, with_shapes: bool) -> tuple[NDArray[np.int64], Mask]:
    """Lower-quartile duration of launches alike to each, and whether there are enough of them."""
    ops = trace.device_ops
    assert ops is not None
    shapes = _shapes(trace)
    given = (ops["name"], ops.filled("grid", -1), ops.filled("block", -1), shapes)
    group = distinct_rows(*(column.astype(np.int64) for column in given))[1]
    took = ops["duration_ns"].astype(np.int64)
    order = np.lexsort((took, group))
    first = np.searchsorted(group[order], np.arange(group.max() + 1))
    count = np.bincount(group)
    quarter = took[order][first + count // 4]
    alike: Mask = (count >= FEWEST_ALIKE)[group] & (ops["kind"] == DeviceKind.KERNEL)
    return quarter[group], alike & (shapes >= 0) if with_shapes else alike


def _shapes(trace: Trace) -> NDArray[np.int64]:
    """Input shapes of the operator that launched each operation, as a name; -1 where unknown.

    One kernel with one grid serves products of any depth, so without shapes nothing is alike.
    """
    ops, host = trace.device_ops, trace.host_ops
    assert ops is not None
    if host is None or not len(host):
        return np.full(len(ops), -1, np.int64)
    known = np.append(host.filled("shapes", -1), -1).astype(np.int64)
    return known[ops.filled("host_op", len(host))]
