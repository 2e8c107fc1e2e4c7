"""How work is handed to the device: launches, their cost and delay, graphs, synchronisations."""

import numpy as np

from pinchpoint.analysis.host.ancestry import nearest, parents
from pinchpoint.analysis.host.frames import PythonFrame, frame_of, frames_for_readers
from pinchpoint.analysis.statistics import Spread, spread
from pinchpoint.frozen import dataclass
from pinchpoint.trace import ApiKind, DeviceKind, HostKind, Table, Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows
from pinchpoint.trace.intervals import covered_before, flatten

# A launch costs the host about 5 µs of calls and dispatch, so kernels below twice that leave the
# device waiting for the next one.
SHORT_KERNEL_NS = 10_000

_SYNCS = (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM, ApiKind.SYNC_EVENT)
_LAUNCHES = (ApiKind.LAUNCH, ApiKind.GRAPH_LAUNCH)


@dataclass(frozen=True)
class SyncRow:
    """Synchronising calls of one kind from one place."""

    kind: ApiKind
    name: str
    operator: str | None  # around the call
    frame: PythonFrame | None  # the program's function around the call
    calls: int
    total_ns: int


@dataclass(frozen=True)
class LaunchStatistics:
    """Every spread is None where nothing of its kind happened; times in ns."""

    launches: int  # of single kernels
    graph_launches: int
    ops_per_graph: Spread | None  # device operations that one graph launch started
    launch_call_ns: Spread | None  # time in the launching call, on the host
    kernel_ns: Spread | None
    kernels: int
    short_kernels: int  # below SHORT_KERNEL_NS
    short_kernels_ns: int  # their time, of kernels_ns
    kernels_ns: int
    delay_ns: Spread | None  # from the call to the start of its operation, queueing included
    latency_ns: Spread | None  # the same where the device was idle in between: no queueing
    interval_ns: Spread | None  # between successive launches of a thread without a wait between
    syncs: tuple[SyncRow, ...]  # most time first


def launch_statistics(trace: Trace, rows: Mask | None = None) -> LaunchStatistics:
    """Statistics of the calls in the mask ``rows`` of ``api_calls`` and of what they started.

    Without a mask, operations without a known call count as well.
    """
    calls, ops = trace.api_calls, trace.device_ops
    kept = np.ones(0 if calls is None else len(calls), np.bool_) if rows is None else rows
    started = np.ones(0 if ops is None else len(ops), np.bool_)
    if ops is not None and rows is not None:
        started = np.append(kept, False)[ops.filled("api_call", len(kept))]
    kind = np.zeros(0, np.uint8) if calls is None else calls["kind"]
    lasted = _durations(ops, started)
    delay, latency = _delays(calls, ops, started)
    return LaunchStatistics(
        launches=int(np.count_nonzero((kind == ApiKind.LAUNCH) & kept)),
        graph_launches=int(np.count_nonzero((kind == ApiKind.GRAPH_LAUNCH) & kept)),
        ops_per_graph=_ops_per_graph(calls, ops, kept),
        launch_call_ns=_call_durations(calls, kept & (kind == ApiKind.LAUNCH)),
        kernel_ns=spread(lasted),
        kernels=len(lasted),
        short_kernels=int(np.count_nonzero(lasted < SHORT_KERNEL_NS)),
        short_kernels_ns=int(lasted[lasted < SHORT_KERNEL_NS].sum()),
        kernels_ns=int(lasted.sum()),
        delay_ns=delay,
        latency_ns=latency,
        interval_ns=_intervals(calls, kept),
        syncs=_syncs(trace, kept),
    )


def _durations(ops: Table | None, started: Mask) -> Ints:
    if ops is None:
        return np.zeros(0, np.int64)
    lasted: Ints = ops["duration_ns"][started & (ops["kind"] == DeviceKind.KERNEL)]
    return lasted


def _call_durations(calls: Table | None, which: Mask) -> Spread | None:
    return None if calls is None else spread(calls["duration_ns"][which])


def _ops_per_graph(calls: Table | None, ops: Table | None, kept: Mask) -> Spread | None:
    if calls is None or ops is None or not len(calls):
        return None
    started = np.bincount(ops["api_call"][ops.known("api_call")], minlength=len(calls))
    return spread(started[(calls["kind"] == ApiKind.GRAPH_LAUNCH) & kept])


def _delays(
    calls: Table | None, ops: Table | None, started: Mask
) -> tuple[Spread | None, Spread | None]:
    """From call to start: of all single kernels, and of those that met an idle device.

    Devices report starts before their launch now and then, because the clocks are two; those
    delays are taken as 0.
    """
    if calls is None or ops is None or not len(calls):
        return None, None
    known = ops.known("api_call") & started & (ops["kind"] == DeviceKind.KERNEL)
    known &= calls["kind"][np.where(known, ops["api_call"], 0)] == ApiKind.LAUNCH
    call = ops["api_call"][known]
    start, device = ops["start_ns"][known], ops["device"][known]
    delay = np.maximum(start - calls["start_ns"][call], 0)
    idle = np.zeros(len(call), np.bool_)
    for number in np.unique(device):
        on_it = ops["device"] == number
        busy = flatten(ops["start_ns"][on_it], ops.end_ns[on_it])
        mine = device == number
        issued = np.minimum(calls.end_ns[call[mine]], start[mine])
        idle[mine] = covered_before(busy, start[mine]) == covered_before(busy, issued)
    return spread(delay), spread(delay[idle])


def _intervals(calls: Table | None, kept: Mask) -> Spread | None:
    if calls is None:
        return None
    which = np.flatnonzero(kept & np.isin(calls["kind"], (*_LAUNCHES, *_SYNCS)))
    order = which[np.lexsort((calls["start_ns"][which], calls["thread"][which]))]
    this, after = order[:-1], order[1:]
    paced = np.isin(calls["kind"][this], _LAUNCHES) & np.isin(calls["kind"][after], _LAUNCHES)
    paced &= calls["thread"][this] == calls["thread"][after]
    return spread((calls["start_ns"][after] - calls["start_ns"][this])[paced])


def _syncs(trace: Trace, kept: Mask) -> tuple[SyncRow, ...]:
    calls = trace.api_calls
    if calls is None:
        return ()
    which = np.flatnonzero(kept & np.isin(calls["kind"], _SYNCS))
    operator, frame = _places(trace, calls, which)
    places = np.stack((calls["name"][which], operator, frame)).astype(np.int64)
    distinct, first, group = np.unique(places, axis=1, return_index=True, return_inverse=True)
    group = group.reshape(-1)  # numpy 2.0 gave it two dimensions
    count = np.bincount(group, minlength=len(first))
    total = np.zeros(len(first), np.int64)
    np.add.at(total, group, calls["duration_ns"][which])
    names = (*trace.names, "")
    rows = [
        SyncRow(
            kind=ApiKind(calls["kind"][which[first[i]]]),
            name=trace.names[name],
            operator=names[op] or None,
            frame=frame_of(names[at]),
            calls=int(count[i]),
            total_ns=int(total[i]),
        )
        for i, (name, op, at) in enumerate(distinct.T.tolist())
    ]
    return tuple(sorted(rows, key=lambda r: (-r.total_ns, -r.calls)))


def _places(trace: Trace, calls: Table, which: Rows) -> tuple[Ints, Ints]:
    """Names of the operator and of the program's function around calls; ``len(names)`` if none."""
    unknown = len(trace.names)
    host = trace.host_ops
    if host is None or not len(host):
        return np.full(len(which), unknown), np.full(len(which), unknown)
    names = np.append(host["name"].astype(np.int64), unknown)
    row = calls.filled("host_op", len(host))[which]
    parent = parents(host)
    wanted = (host["kind"] == HostKind.OPERATOR, frames_for_readers(trace))
    around = (nearest(parent, mask) for mask in wanted)
    operator, frame = (names[np.append(a, len(host))[row]] for a in around)
    return operator, frame
