"""Searches for the fastest of several kernels, as tuners do: each is timed between two events.

A tuner launches a candidate, with an event recorded right before and right after it, several times
in a row; then the next one. Between them it may overwrite a buffer, so that caches hold nothing.
Afterwards the fastest is launched for the program, without events, and the program goes on.
"""

from collections.abc import Iterator

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.trace import ApiKind, DeviceKind, Table, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints, Rows

TIMES = 3  # in a row: tuners time a candidate until its time is sure, a program each of its calls
CANDIDATES = 2  # of one there is nothing to choose
BUFFER_RATIO = 0.4  # of what is between events: two of five, where a candidate has three turns
_LAUNCHES = (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH, ApiKind.MEMSET, ApiKind.COPY)


@dataclass(frozen=True, eq=False)
class Search:
    """From the first launch of a candidate to the launch of the one that the program uses."""

    start_ns: int
    end_ns: int
    thread: int
    api_calls: Rows  # all in it, of its thread
    candidates: int
    timed: int  # launches between two events
    kernel: int  # position in ``trace.names`` of the one that is used
    grid: int  # the same of its grid; -1: not recorded
    used_by: int  # row of ``host_ops`` around the launch that is used; their count: none


@once_per_trace
def searches(trace: Trace) -> tuple[Search, ...]:
    """All of a recording, in order of time on each thread."""
    calls, ops = trace.api_calls, trace.device_ops
    if calls is None or ops is None or not (calls["kind"] == ApiKind.EVENT_RECORD).any():
        return ()
    work = _work_of_calls(len(calls), ops)
    told = np.isin(calls["kind"], (*_LAUNCHES, ApiKind.EVENT_RECORD)) | (work >= 0)
    found: list[Search] = []
    for thread in np.unique(calls["thread"][told]).tolist():
        rows = np.flatnonzero(told & (calls["thread"] == thread))
        rows = rows[np.argsort(calls["start_ns"][rows], kind="stable")]
        found += _of_thread(trace, rows, work[rows])
    return tuple(found)


def _work_of_calls(calls: int, ops: Table) -> Ints:
    """The row of ``device_ops`` that each call started; -1: none."""
    work = np.full(calls, -1, np.int64)
    linked = np.flatnonzero(ops.known("api_call"))
    work[ops["api_call"][linked]] = linked
    return work


def _of_thread(trace: Trace, rows: Rows, work: Ints) -> Iterator[Search]:
    calls, ops = trace.api_calls, trace.device_ops
    assert calls is not None
    assert ops is not None
    event = calls["kind"][rows] == ApiKind.EVENT_RECORD
    kernel = (work >= 0) & (ops["kind"][work] == DeviceKind.KERNEL)
    timed = kernel & np.append(False, event[:-1]) & np.append(event[1:], False)
    if timed.sum() < CANDIDATES * TIMES:
        return
    launch = ~event
    rows, work, timed = rows[launch], work[launch], timed[launch]
    which = _candidates(ops, work)
    kernel = (work >= 0) & (ops["kind"][work] == DeviceKind.KERNEL)
    other = kernel & ~np.isin(which, np.unique(which[timed]))
    block = np.cumsum(other)
    for number in np.unique(block[timed]).tolist():
        mine = np.flatnonzero((block == number) & ~other)
        after = mine[-1] + 1 < len(rows)
        one = _search(trace, rows, work, which, mine, np.flatnonzero(timed[mine]), goes_on=after)
        if one is not None:
            yield one


def _candidates(ops: Table, work: Ints) -> Ints:
    """A number for each kernel with its configuration, alike for launches of the same."""
    told = [ops["name"][work], ops.filled("block", -1)[work], ops.filled("registers", -1)[work]]
    told += [ops.filled("grid", -1)[work], ops.filled("shared_bytes", -1)[work]]
    each = np.stack([column.astype(np.int64) for column in told])
    return np.unique(each, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _overwritten(order: Ints) -> int:
    """The one that comes between all others, which is no candidate; -1: none."""
    if not len(order):
        return -1
    most = int(np.bincount(order).argmax())
    mine = order == most
    changes = len(np.unique(order))  # where one candidate's turns end, the pattern breaks
    alternates = (order[1:] == order[:-1]).sum() <= changes
    alternates &= mine.sum() >= BUFFER_RATIO * len(order)
    return most if alternates else -1


def _search(
    trace: Trace, rows: Rows, work: Ints, which: Ints, mine: Rows, timed: Rows, *, goes_on: bool
) -> Search | None:
    """``mine``: launches of nothing but candidates and buffers; ``timed``: positions in it."""
    calls, ops = trace.api_calls, trace.device_ops
    assert calls is not None
    assert ops is not None
    order = which[mine][timed]
    buffer = _overwritten(order)
    timed, order = timed[order != buffer], order[order != buffer]
    edge = np.flatnonzero(np.append(True, order[1:] != order[:-1]))
    long = np.diff(np.append(edge, len(order))) >= TIMES
    several = np.unique(order[edge[long]])
    rest = mine[timed[-1] + 1 :] if len(timed) else mine[:0]
    kernels = rest[ops["kind"][work[rest]] == DeviceKind.KERNEL]
    if len(several) < CANDIDATES or not goes_on or len(kernels) != 1:
        return None
    used = kernels[0]  # the program needs it, and goes on after it
    if which[used] not in several:
        return None
    first = int(np.flatnonzero(np.isin(which[mine], [*order, buffer]))[0])
    call = rows[used]
    start, end = int(calls["start_ns"][rows[mine[first]]]), int(calls["start_ns"][call])
    thread = int(calls["thread"][call])
    inside = calls["thread"] == thread
    inside &= (calls["start_ns"] >= start) & (calls["start_ns"] < end)
    row = int(work[used])
    return Search(
        start,
        end,
        thread,
        np.flatnonzero(inside),
        len(several),
        len(timed),
        int(ops["name"][row]),
        int(ops.filled("grid", -1)[row]),
        int(ops.filled("host_op", len(trace.host_ops or ()))[row]),
    )
