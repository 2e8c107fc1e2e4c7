"""Calls in which the host waited while the device worked.

Synchronising calls are meant to. Copies of ordinary memory, freeing memory, and every launch
under CUDA_LAUNCH_BLOCKING wait as well: they return only when the device is done.
"""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.host_timeline import host_rows
from pinchpoint.analysis.launches import issued, of_own_process, own_work
from pinchpoint.trace import ApiKind, Trace, once_per_trace
from pinchpoint.trace import intervals as iv
from pinchpoint.trace.arrays import Ints, Mask

SYNCHRONISING = (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM, ApiKind.SYNC_EVENT, ApiKind.FREE)
SHORT_CALL_NS = 20_000  # a launch or copy that returns sooner waited for nothing
RETURNS_WITHIN_NS = 20_000  # of the end of its own operation: it waited for it


@dataclass(frozen=True, eq=False)
class Waits:
    """Calls that waited for the device, in order of their ends."""

    row: Ints  # of host_rows
    start_ns: Ints
    end_ns: Ints
    lost_ns: Ints  # time in the call during which the device worked


@once_per_trace
def waits(trace: Trace) -> Waits:
    """Every call in which the host waited for a working device, and how long."""
    calls, ops = trace.api_calls, trace.device_ops
    if calls is None or ops is None or not len(calls) or not len(ops):
        none = np.zeros(0, np.int64)
        return Waits(none, none, none, none)
    waiting = np.isin(calls["kind"], SYNCHRONISING) | _waits_for_its_own(trace)
    waiting &= of_own_process(trace)[calls["thread"]]
    row = np.flatnonzero(waiting)
    start, end = calls["start_ns"][row], calls.end_ns[row]
    own = own_work(trace)
    busy = iv.flatten(ops["start_ns"][own], ops.end_ns[own])
    lost = iv.covered_before(busy, end) - iv.covered_before(busy, start)
    order = np.argsort(end, kind="stable")
    order = order[lost[order] > 0]
    first = host_rows(trace).operators
    return Waits(row[order] + first, start[order], end[order], lost[order])


def _waits_for_its_own(trace: Trace) -> Mask:
    """Long launches and copies that return when their operation is done."""
    calls, ops, by = trace.api_calls, trace.device_ops, issued(trace)
    assert calls is not None
    assert ops is not None
    done = np.zeros(len(calls), np.int64)
    np.maximum.at(done, by.call[by.linked], ops.end_ns[by.linked])
    late = (done > calls["start_ns"]) & (done <= calls.end_ns + RETURNS_WITHIN_NS)
    result: Mask = late & (calls["duration_ns"] > SHORT_CALL_NS)
    return result
