"""The device side of the trace: operations with their launches, and ranges seen on the device."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.importers.nsys.device import NONE, DeviceRows
from pinchpoint.importers.nsys.host_table import ApiTable, HostTable, ProcessKeys, ThreadIndex
from pinchpoint.trace import DeviceKind, HostKind, Names, Table, empty_table, table
from pinchpoint.trace.arrays import Array, Ints, distinct_rows

_EXTRA = (
    "bytes", "from_memory", "to_memory", "grid", "block", "registers", "shared_bytes", "graph_node",
    "collective",
)  # fmt: skip
_STREAM_SHIFT = 65536  # keeps equal stream numbers of two contexts on one device apart


@dataclass(frozen=True)
class DeviceTable:
    """``device_ops`` and what the importer has to say about it."""

    table: Table
    unlaunched: int  # operations whose launching call is not in the file
    opaque_graphs: int  # graph replays recorded as a whole


def assemble(
    parts: tuple[DeviceRows, ...],
    api: ApiTable | None,
    threads: ThreadIndex,
    processes: ProcessKeys,
    device_numbers: Mapping[tuple[int, int], int],
    origin: int,
) -> DeviceTable | None:
    """All device operations in one table; None if the recording has no table of them."""
    if not parts:
        return None
    rows = _merged(parts, processes)
    order = np.lexsort((-rows["end"], rows["start"]))
    for name in rows:  # one after the other: each of a million rows is 8 MB
        rows[name] = rows[name][order]
    extra = [name for name in _EXTRA if name in rows]
    device = _numbered(rows["pid"], rows["device"], device_numbers)
    stream = _apart(device, rows)
    call = _launching_call(api, rows["key"])
    host_op = np.full(len(call), NONE, np.int64)
    if api is not None and len(api.table):
        host_op = np.where(call == NONE, NONE, api.table.filled("host_op", NONE)[call])
    rank, no_rank = threads.ranks_of_pids(rows["pid"])
    columns: dict[str, Any] = {
        "start_ns": rows["start"] - origin,
        "duration_ns": rows["end"] - rows["start"],
        "name": rows["name"],
        "kind": rows["kind"],
        "device": device,
        "stream": stream,
        "rank": rank,
        "correlation": rows["key"],
        "api_call": call,
        "host_op": host_op,
        **{k: rows[k] for k in extra},
    }
    missing = {
        k: columns[k] == NONE for k in ("stream", "correlation", "api_call", "host_op", *extra)
    }
    for small in {"from_memory", "to_memory"} & columns.keys():
        columns[small] = np.maximum(columns[small], 0)
    made = table("device_ops", columns, missing | {"rank": no_rank})
    return DeviceTable(made, int((call == NONE).sum()), int(rows["opaque"].sum()))


def _merged(parts: tuple[DeviceRows, ...], processes: ProcessKeys) -> dict[str, Array]:
    merged: dict[str, Array] = {
        k: _joined([getattr(p, k) for p in parts])
        for k in ("start", "end", "kind", "name", "device", "context", "stream", "pid")
    }
    for k in (k for k in _EXTRA if any(k in p.extra for p in parts)):
        merged[k] = _joined(
            [p.extra[k] if k in p.extra else np.full(len(p.start), NONE, np.int64) for p in parts]
        )
    numbers = _joined([p.correlation for p in parts])
    merged["key"] = processes.keyed(merged["pid"], numbers)
    merged["opaque"] = np.concatenate([np.full(len(p.start), p.whole_graphs) for p in parts])
    # a replay whose kernels were recorded too would be counted twice
    inside = np.unique(merged["key"][~merged["opaque"]])
    twice = merged["opaque"] & np.isin(merged["key"], inside) & (merged["key"] != NONE)
    return {k: v[~twice] for k, v in merged.items()} if twice.any() else merged


def _joined(arrays: list[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _numbered(pid: Ints, ordinal: Ints, numbers: Mapping[tuple[int, int], int]) -> Ints:
    device = ordinal.copy()
    for (process, cuda), gpu in numbers.items():
        device[(pid == process) & (ordinal == cuda)] = gpu
    return device


def _apart(device: Ints, rows: Mapping[str, Ints]) -> Ints:
    """Stream numbers; those of further contexts on a device are shifted where they collide."""
    owners = device, rows["stream"], rows["pid"], rows["context"]
    distinct, which = distinct_rows(*owners)
    shifted = distinct[:, 1].copy()
    for i in range(1, len(distinct)):
        if (distinct[i, :2] == distinct[i - 1, :2]).all() and distinct[i, 1] != NONE:
            shifted[i] = shifted[i - 1] + _STREAM_SHIFT
    return shifted[which]


def _launching_call(api: ApiTable | None, keys: Ints) -> Ints:
    call = np.full(len(keys), NONE, np.int64)
    if api is None or not len(api.keys):
        return call
    place = np.minimum(np.searchsorted(api.keys, keys), len(api.keys) - 1)
    hit = (api.keys[place] == keys) & (keys != NONE)
    call[hit] = api.row_of_key[place[hit]]
    return call


def with_payloads(ops: Table, host: HostTable, payloads: Mapping[int, str], names: Names) -> Table:
    """Collectives with what NCCL said about them in the range that launched them."""
    if not payloads:
        return ops
    columns, missing = dict(ops.columns), dict(ops.missing)
    args = np.full(len(ops), NONE, np.int64)
    launcher = ops.filled("host_op", NONE)
    for row in np.flatnonzero((ops["kind"] == DeviceKind.COLLECTIVE) & (launcher != NONE)).tolist():
        text = payloads.get(int(host.nvtx_row[launcher[row]]))
        if text is not None:
            args[row] = names.id_of(text)
    columns["collective_args"], missing["collective_args"] = args, args == NONE
    return table("device_ops", columns, missing)


def annotations(ops: Table | None, api: ApiTable | None, host: HostTable | None) -> Table | None:
    """Annotations projected onto devices: from the first to the last operation launched inside.

    One row an annotation and device; None without launches or ranges. What other threads launch
    for the annotation (autograd) is not in it.
    """
    if ops is None or api is None or host is None:
        return None
    call = ops.filled("api_call", NONE)
    launched = np.flatnonzero(call != NONE)
    thread, at = api.table["thread"][call[launched]], api.table["start_ns"][call[launched]]
    order = np.lexsort((at, thread))
    launched, thread, at = launched[order], thread[order], at[order]
    ranges = host.table
    wanted = (ranges["kind"] == HostKind.ANNOTATION) & (ranges["duration_ns"] > 0)
    parts = []
    for device in np.unique(ops["device"][launched]).tolist():
        mine = ops["device"][launched] == device
        parts += [
            _projected(
                ops, ranges, launched[mine][on], at[mine][on], np.flatnonzero(wanted & of), device
            )
            for one in np.unique(thread[mine]).tolist()
            for on, of in [(thread[mine] == one, ranges["thread"] == one)]
        ]
    return _annotation_table(parts)


def _projected(
    ops: Table, ranges: Table, rows: Ints, at: Ints, asked: Ints, device: int
) -> dict[str, Array]:
    low = np.searchsorted(at, ranges["start_ns"][asked], "left")
    high = np.searchsorted(at, ranges.end_ns[asked], "right")
    some = high > low
    low, high, asked = low[some], high[some], asked[some]
    edges = np.stack([low, high], axis=1).reshape(-1)
    first = _reduced(np.minimum, ops["start_ns"][rows], edges)
    last = _reduced(np.maximum, ops.end_ns[rows], edges)
    return {
        "start_ns": first,
        "duration_ns": last - first,
        "name": ranges["name"][asked],
        "device": np.full(len(asked), device, np.int32),
        "rank": ranges.filled("rank", NONE)[asked],
    }


def _reduced(fold: np.ufunc, values: Ints, edges: Ints) -> Ints:
    if not len(edges):
        return np.zeros(0, np.int64)
    padded = np.append(values, values[-1])  # an edge may be one past the end
    folded: Ints = fold.reduceat(padded, edges)[::2]
    return folded


def _annotation_table(parts: list[dict[str, Array]]) -> Table:
    if not parts:
        return empty_table("device_annotations")
    merged = {k: np.concatenate([p[k] for p in parts]) for k in parts[0]}
    order = np.lexsort((-merged["duration_ns"], merged["start_ns"]))
    merged = {k: v[order] for k, v in merged.items()}
    return table("device_annotations", merged, {"rank": merged["rank"] == NONE})
