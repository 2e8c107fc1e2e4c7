"""Another process uses the device.

## What it looks for
A run folder in which the driver saw other processes on the device than the recorded ones; and
launches of one kernel, alike in name, grid and block, of which some take a whole time slice of the
device longer than the others. Where the processes of the device were not recorded this is not
checked, and what the launches tell is said: that the work of a sort, an index or an atomic addition
depends on its data; or, where it cannot depend on it (dense products of the same shapes), nothing
else of the program was on the device meanwhile, and each lost the same time, that they look as if
they took turns with another process.

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

from pinchpoint.analysis.costs import cost_of
from pinchpoint.analysis.replay import ScaleDeviceOps
from pinchpoint.analysis.run import device_looks, ranks_on_device
from pinchpoint.analysis.steps.in_steps import device_ops_in_steps, per_step
from pinchpoint.analysis.work.pointwise_chains import launched_calls
from pinchpoint.diagnosis.evidence.device_work import device_work
from pinchpoint.diagnosis.finding import Evidence, Found, Small
from pinchpoint.diagnosis.record import TELEMETRY
from pinchpoint.diagnosis.rule import NotChecked, Rule
from pinchpoint.trace import DeviceKind, Trace
from pinchpoint.trace.arrays import Mask, Rows, distinct_rows

RULE = Rule(
    needs=("device_ops",),
    record=TELEMETRY,
    periodic=True,  # where steps are short, a turn of another process falls into some of them
    confirm="pinchpoint monitor --once --json  # while it runs: processes of the device",
)

LEAST_SLICE_NS = 500_000  # a turn of another process: time slices are 1 to 6 ms on NVIDIA devices
STRETCHED_RATIO = 3.0  # against the usual duration of the same launch
FEWEST_ALIKE = 16  # launches, for a median that a few stretched ones do not move
# Of the device time; a neighbour that computes all the time takes about half.
LEAST_LOST_RATIO = 0.15
# Where only the launches themselves can hint at it: enough for a spread.
FEWEST_TURNS = 8
# A scheduler's slices have one length: on an H100 that two processes shared, the middle 80 % of 40
# lost turns lay within 2 % of 2.5 ms.
ALIKE_RATIO = 0.2


def check(trace: Trace) -> Iterator[Found | Small]:
    """Kernels that lose the device for a time slice."""
    ops = trace.device_ops
    if ops is None:
        return
    others = _others(trace)
    if others == 0:
        return
    usual, alike = _usual(trace)
    took = ops["duration_ns"]
    lost = took - usual
    stretched = alike & (lost >= LEAST_SLICE_NS) & (took >= STRETCHED_RATIO * usual)
    work = device_work(trace, stretched, "kernels that were stretched")
    inside = alike & device_ops_in_steps(trace)
    if work is None or len(work.rows) < 3:
        return
    gone, whole = int(lost[work.rows].sum()), int(took[inside].sum())
    if gone < LEAST_LOST_RATIO * whole:
        if others is not None:
            yield Small(gone / whole, LEAST_LOST_RATIO, "the device's time")
        return
    if others is None:
        longer = f"{work.count:.3g} kernels a step take far longer than others like them"
        if _are_turns(trace, work.rows, lost[work.rows]):
            longer = (
                f"{work.count:.3g} kernels a step each lose the same"
                f" {np.median(lost[work.rows]) / 1e6:.1f} ms, {per_step(trace, gone) / 1e6:.1f} ms"
                " a step in all, as if they took turns on the device"
            )
        raise NotChecked(
            f"{longer}, and whether another process was on it is not recorded", fits=True
        )
    ratio = float(usual[work.rows].sum() / took[work.rows].sum())
    yield Found(
        summary=(
            f"{work.count:.3g} kernels a step lose the device for"
            f" {np.median(lost[work.rows]) / 1e6:.1f} ms each: another process takes turns on it"
        ),
        evidence=(
            Evidence("lost to others", round(per_step(trace, gone)), "ns per step"),
            Evidence("usual duration of the same launch", int(np.median(usual[work.rows])), "ns"),
            Evidence("other processes on the device", others, "count"),
            *work.evidence,
        ),
        cost_ns_per_step=round(per_step(trace, gone)),
        changes=(ScaleDeviceOps(work.rows, ratio),),
        location=work.place,
        fix="Find the other process on the device and move it, or share with MPS",
        hint="nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
    )


def _are_turns(trace: Trace, rows: Rows, lost_ns: NDArray[np.int64]) -> bool:
    """Whether nothing but turns of somebody else explains what these launches lost."""
    if len(rows) < FEWEST_TURNS or not _is_dense(trace)[rows].all():
        return False
    first, median, last = np.quantile(lost_ns, [0.1, 0.5, 0.9])
    return bool(last - first <= ALIKE_RATIO * median) and not _has_company(trace)[rows].any()


def _is_dense(trace: Trace) -> Mask:
    """Products and convolutions: their work is told by their shapes."""
    return launched_calls(trace).where(
        lambda of: (cost := cost_of(of.call)) is not None and cost.matrix
    )


def _has_company(trace: Trace) -> Mask:
    """Whether another device operation of the recording was on the same device meanwhile."""
    ops = trace.device_ops
    assert ops is not None
    found = np.zeros(len(ops), np.bool_)
    for device in np.unique(ops["device"]):
        mine = np.flatnonzero(ops["device"] == device)
        mine = mine[np.argsort(ops["start_ns"][mine], kind="stable")]
        start, end = ops["start_ns"][mine], ops.end_ns[mine]
        before = np.maximum.accumulate(np.append(0, end[:-1]))
        after = np.append(start[1:], end[-1:])
        found[mine] = (before > start) | (after < end)
    return found


def _others(trace: Trace) -> int | None:
    """Processes on the device beside the recorded ones, by the driver's count; None: not known."""
    looks = device_looks(trace).get(trace.devices[0].number if trace.devices else 0)
    most = None if looks is None else looks.most("process_count")
    return None if most is None else max(0, int(most) - ranks_on_device(trace))


def _usual(trace: Trace) -> tuple[NDArray[np.int64], Mask]:
    """Lower-quartile duration of launches alike to each, and whether there are enough of them."""
    ops = trace.device_ops
    assert ops is not None
    given = (ops["name"], ops.filled("grid", -1), ops.filled("block", -1), _shapes(trace))
    group = distinct_rows(*(column.astype(np.int64) for column in given))[1]
    took = ops["duration_ns"].astype(np.int64)
    order = np.lexsort((took, group))
    first = np.searchsorted(group[order], np.arange(group.max() + 1))
    count = np.bincount(group)
    quarter = took[order][first + count // 4]
    alike: Mask = (count >= FEWEST_ALIKE)[group] & (ops["kind"] == DeviceKind.KERNEL)
    return quarter[group], alike


def _shapes(trace: Trace) -> NDArray[np.int64]:
    """Input shapes of the operator that launched each operation, as a name; -1 where unknown."""
    ops, host = trace.device_ops, trace.host_ops
    assert ops is not None
    if host is None or not len(host):
        return np.full(len(ops), -1, np.int64)
    known = np.append(host.filled("shapes", -1), -1).astype(np.int64)
    return known[ops.filled("host_op", len(host))]
