"""The least time of kernels that share a device, on however many streams they are launched.

Streams are order, not room: a kernel with a block for each multiprocessor leaves none to another,
and what two of them do at once takes as long as one after the other. So at each moment of the
recording the device was taken to the share that its kernels fill, at most whole, and after a change
it still is by what the change leaves of these. A kernel that left multiprocessors free may run
beside others, where that was not seen either; one whose blocks or whose device is not known had the
device. Copies have engines of their own, and collectives wait for other ranks: neither counts here.
"""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.tables.kernels import blocks_of_device_ops
from pinchpoint.frozen import dataclass
from pinchpoint.trace import DeviceKind, Trace, once_per_trace
from pinchpoint.trace.arrays import Floats, Ints, Mask, Rows, distinct
from pinchpoint.trace.intervals import Intervals


def shared_ns(trace: Trace, left: Floats, windows: Intervals | None = None) -> float:
    """What kernels take at least on the device with most of them, within the windows if given.

    ``left`` is the share of each row of ``device_ops`` that stays, 0 to 1: of those that do not
    count, nothing.
    """
    ops = trace.device_ops
    if ops is None or not len(ops):
        return 0.0
    taken = left * filled(trace)
    most = 0.0
    for edges in _edges(trace):
        share = taken.take(edges.row)
        counts = share > 0
        if not counts.any():
            continue
        at = edges.at_ns[counts]
        change = np.where(edges.begins, share, -share)[counts]
        level = np.clip(np.cumsum(change)[:-1], 0.0, 1.0)  # sums of shares are not exact
        before = np.concatenate(([0.0], np.cumsum(level * np.diff(at))))
        if windows is None:
            most = max(most, float(before[-1]))
        else:
            within = np.interp(windows.end, at, before) - np.interp(windows.start, at, before)
            most = max(most, float(within.sum()))
    return most


@dataclass(frozen=True, eq=False)
class _Edges:
    """Starts and ends of a device's kernels in order of time; arrays of one length."""

    row: NDArray[np.int32]  # of device_ops
    at_ns: Ints
    begins: Mask


@once_per_trace
def _edges(trace: Trace) -> tuple[_Edges, ...]:
    """Those of each device that has kernels: what a change leaves of them is asked many times."""
    ops = trace.device_ops
    assert ops is not None
    counted = (ops["kind"] == DeviceKind.KERNEL) & (ops["duration_ns"] > 0)
    found = []
    for device in distinct(ops["device"][counted]).tolist():
        mine = np.flatnonzero(counted & (ops["device"] == device)).astype(np.int32)
        at_ns = np.concatenate((ops["start_ns"][mine], ops.end_ns[mine]))
        order = np.argsort(at_ns, kind="stable")
        begins = order < len(mine)
        found.append(_Edges(mine.take(order % len(mine)), at_ns[order], begins))
    return tuple(found)


def shared_by_rows_ns(trace: Trace, rows: Rows, left_ns: Floats) -> float:
    """The same of these rows of ``device_ops``, of each of which ``left_ns`` stays."""
    ops = trace.device_ops
    if ops is None or not len(rows):
        return 0.0
    left = np.zeros(len(ops))
    left[rows] = np.minimum(left_ns / np.maximum(ops["duration_ns"][rows], 1), 1.0)
    return shared_ns(trace, left)


@once_per_trace
def filled(trace: Trace) -> Floats:
    """The share of its device's multiprocessors that each row of ``device_ops`` has a block for."""
    ops = trace.device_ops
    if ops is None:
        return np.zeros(0)
    blocks, share = blocks_of_device_ops(trace), np.ones(len(ops))
    for device in trace.devices:
        known = (ops["device"] == device.number) & (blocks > 0)
        if device.multiprocessors:
            share[known] = np.minimum(blocks[known] / device.multiprocessors, 1.0)
    return share
