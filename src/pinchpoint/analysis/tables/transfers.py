"""Copies between memories: how much, how fast, and whether anybody had to wait."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.device.categories import Category, by_distinct, category_of_device_ops
from pinchpoint.analysis.statistics import Spread, spread
from pinchpoint.frozen import dataclass
from pinchpoint.trace import ApiKind, DeviceKind, MemoryKind, Table, Trace
from pinchpoint.trace.arrays import Ints, Mask, Rows
from pinchpoint.trace.intervals import covered_before, flatten

LASTS_THROUGH_RATIO = 0.5  # share of a copy during which its call is open, so that it waits for it

_WAITS = (ApiKind.SYNC_DEVICE, ApiKind.SYNC_STREAM, ApiKind.SYNC_EVENT)
_SILENT = (ApiKind.QUERY, ApiKind.OTHER)  # calls that change nothing between a copy and its wait


@dataclass(frozen=True)
class TransferRow:
    """All copies between two kinds of memory."""

    direction: Category
    source: MemoryKind | None
    target: MemoryKind | None
    count: int
    bytes: int | None  # of the copies whose size the file gives
    total_ns: int  # sum of durations on the device
    bytes_per_s: float | None  # bytes over the time of the same copies
    size_bytes: Spread | None
    blocking: int  # copies that the host waited for; see blocked_ns
    host_blocked_ns: int
    overlapped_ns: int  # of the total, while a kernel ran on the same device

    @property
    def overlapped_ratio(self) -> float:
        """Share of the copying time that was hidden behind kernels."""
        return self.overlapped_ns / self.total_ns if self.total_ns else 0.0


def transfers(trace: Trace, rows: Mask | None = None) -> tuple[TransferRow, ...]:
    """Copies in the mask ``rows`` of ``device_ops`` by memories, most time first."""
    ops = trace.device_ops
    if ops is None:
        return ()
    counted = ops["kind"] == DeviceKind.COPY
    if rows is not None:
        counted = counted & rows
    copies = np.flatnonzero(counted)
    if not len(copies):
        return ()
    key = ops.filled("from_memory", 0).astype(np.int64) * 256 + ops.filled("to_memory", 0)
    facts = blocked_ns(trace), _hidden_ns(ops)
    groups = (copies[key[copies] == k] for k in np.unique(key[copies]))
    table = (_row(trace, ops, group, *facts) for group in groups)
    return tuple(sorted(table, key=lambda r: -r.total_ns))


def blocked_ns(trace: Trace) -> Ints:
    """How long the host waited for each device operation's copy; 0 for what is no copy.

    The host waits in synchronous calls, and in asynchronous ones to or from pageable memory where
    the call lasts through the copy (the last piece may still be under way when it returns); and it
    waits where the same operator synchronises right after the copy, as ``.item()`` and ``.cpu()``
    do. Counted is the time in those calls.
    """
    ops, calls = trace.device_ops, trace.api_calls
    if ops is None or calls is None or not len(calls):
        return np.zeros(0 if ops is None else len(ops), np.int64)
    known = ops.known("api_call") & (ops["kind"] == DeviceKind.COPY)
    call = np.where(known, ops["api_call"], 0)
    both_from = np.maximum(calls["start_ns"][call], ops["start_ns"])
    both = np.minimum(calls.end_ns[call], ops.end_ns) - both_from
    through = known & (both > LASTS_THROUGH_RATIO * ops["duration_ns"])
    through &= _may_wait(trace, ops, calls["name"][call])
    waited = np.where(through, calls["duration_ns"][call], 0)
    waited += np.where(known, _wait_after(calls)[call], 0)
    return waited


def _may_wait(trace: Trace, ops: Table, call_names: NDArray[np.int32]) -> Mask:
    """Copies whose call may wait for them; an asynchronous one merely overlaps by chance."""
    synchronous = by_distinct(trace.names, call_names, lambda name: "async" not in name.lower())
    ends = (ops.filled(c, MemoryKind.DEVICE) for c in ("from_memory", "to_memory"))
    pageable = [np.isin(end, (MemoryKind.PAGEABLE, MemoryKind.HOST)) for end in ends]
    may: Mask = (synchronous != 0) | pageable[0] | pageable[1]
    return may


def _wait_after(calls: Table) -> Ints:
    """Duration of the synchronisation that follows each call in the same operator, else 0."""
    heard = np.flatnonzero(~np.isin(calls["kind"], _SILENT))
    order = heard[np.lexsort((calls["start_ns"][heard], calls["thread"][heard]))]
    this, after = order[:-1], order[1:]
    follows = (
        np.isin(calls["kind"][after], _WAITS)
        & (calls["thread"][this] == calls["thread"][after])
        & (calls["host_op"][this] == calls["host_op"][after])
        & calls.known("host_op")[this]
        & calls.known("host_op")[after]
    )
    waits = np.zeros(len(calls), np.int64)
    waits[this[follows]] = calls["duration_ns"][after[follows]]
    return waits


def _hidden_ns(ops: Table) -> Ints:
    """How much of each device operation ran while a kernel ran on its device."""
    kernels = np.isin(ops["kind"], (DeviceKind.KERNEL, DeviceKind.COLLECTIVE))
    hidden = np.zeros(len(ops), np.int64)
    for device in np.unique(ops["device"]):
        mine = ops["device"] == device
        busy = flatten(ops["start_ns"][mine & kernels], ops.end_ns[mine & kernels])
        start, end = ops["start_ns"][mine], ops.end_ns[mine]
        hidden[mine] = covered_before(busy, end) - covered_before(busy, start)
    return hidden


def _row(trace: Trace, ops: Table, group: Rows, blocked: Ints, hidden: Ints) -> TransferRow:
    sized = group[ops.known("bytes")[group]]
    size, lasted = ops["bytes"][sized], int(ops["duration_ns"][sized].sum())
    source, target = (ops.value(c, int(group[0])) for c in ("from_memory", "to_memory"))
    return TransferRow(
        direction=Category(category_of_device_ops(trace)[group[0]]),
        source=None if source is None else MemoryKind(int(source)),
        target=None if target is None else MemoryKind(int(target)),
        count=len(group),
        bytes=int(size.sum()) if len(sized) else None,
        total_ns=int(ops["duration_ns"][group].sum()),
        bytes_per_s=int(size.sum()) * 1e9 / lasted if lasted else None,
        size_bytes=spread(size),
        blocking=int(np.count_nonzero(blocked[group])),
        host_blocked_ns=int(blocked[group].sum()),
        overlapped_ns=int(hidden[group].sum()),
    )
