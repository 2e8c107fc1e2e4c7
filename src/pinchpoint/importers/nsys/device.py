"""Kernels, copies, memsets and graph replays: what the devices did."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.importers.files.database import Column, Database
from pinchpoint.importers.nsys.database import Strings, interned
from pinchpoint.importers.nsys.host_table import pid_of
from pinchpoint.trace import DeviceKind, MemoryKind, Names
from pinchpoint.trace.arrays import Codes, Ints, NameIds, distinct_rows
from pinchpoint.trace.kinds import collective_kind

NONE = -1  # no position of a row
_SANE_NS = 2**61  # times beyond it are damage, and would overflow in sums

_KERNEL = (
    "start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid",
    "demangledName", "shortName", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
    "registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "graphNodeId",
)  # fmt: skip
_COMMON = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
_COPY = (
    *_COMMON, "bytes", "copyKind", "srcKind", "dstKind", "srcDeviceId", "dstDeviceId",
    "graphNodeId",
)  # fmt: skip

# ENUM_CUDA_MEM_KIND of the exports
_MEMORY = {
    0: MemoryKind.PAGEABLE, 1: MemoryKind.PINNED, 2: MemoryKind.DEVICE, 3: MemoryKind.ARRAY,
    4: MemoryKind.UNIFIED, 5: MemoryKind.DEVICE, 6: MemoryKind.UNIFIED,
}  # fmt: skip
# ENUM_CUDA_MEMCPY_OPER: the ends of a copy where the kinds of memory are not given
_ENDS = {
    1: (MemoryKind.HOST, MemoryKind.DEVICE), 2: (MemoryKind.DEVICE, MemoryKind.HOST),
    3: (MemoryKind.HOST, MemoryKind.ARRAY), 4: (MemoryKind.ARRAY, MemoryKind.HOST),
    5: (MemoryKind.ARRAY, MemoryKind.ARRAY), 6: (MemoryKind.ARRAY, MemoryKind.DEVICE),
    7: (MemoryKind.DEVICE, MemoryKind.ARRAY), 8: (MemoryKind.DEVICE, MemoryKind.DEVICE),
    9: (MemoryKind.HOST, MemoryKind.HOST), 10: (MemoryKind.DEVICE, MemoryKind.PEER),
    # pages of unified memory on their way: one end is the host's memory
    11: (MemoryKind.HOST, MemoryKind.UNIFIED), 12: (MemoryKind.UNIFIED, MemoryKind.HOST),
    13: (MemoryKind.UNIFIED, MemoryKind.UNIFIED),
}  # fmt: skip
_UNIFIED = 11  # the first of those, whose ends both are said to be managed
_DIRECTION = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD",
    9: "HtoH", 10: "PtoP", 11: "UtoD", 12: "DtoU", 13: "UtoU",
}  # fmt: skip
_END_NAME = {
    MemoryKind.DEVICE: "Device", MemoryKind.PINNED: "Pinned", MemoryKind.PAGEABLE: "Pageable",
    MemoryKind.HOST: "Host", MemoryKind.UNIFIED: "Managed", MemoryKind.ARRAY: "Array",
    MemoryKind.PEER: "Peer",
}  # fmt: skip


@dataclass(frozen=True)
class DeviceRows:
    """Operations of one table; -1 stands for null in the optional columns."""

    start: Ints
    end: Ints
    kind: Codes
    name: NameIds
    device: Ints
    context: Ints
    stream: Ints
    correlation: Ints
    pid: Ints
    extra: Mapping[str, Ints]  # columns of device_ops that only some operations have
    dropped: int  # rows whose times make no sense
    whole_graphs: bool = False  # each row is the replay of a whole graph


def read_device_rows(database: Database, strings: Strings, names: Names) -> list[DeviceRows]:
    """The tables of device work that exist; [] if the recording has none."""
    tables = (
        _kernels(database, strings, names),
        _copies(database, names),
        _memsets(database, names),
        _graphs(database, names),
    )
    return [rows for rows in tables if rows is not None]


def _kernels(database: Database, strings: Strings, names: Names) -> DeviceRows | None:
    named = database.has("CUPTI_ACTIVITY_KIND_KERNEL", "demangledName")
    wanted = [c for c in _KERNEL if not (named and c == "shortName")]
    found = database.integers("CUPTI_ACTIVITY_KIND_KERNEL", wanted)
    name_column = found.get("demangledName", found.get("shortName"))
    if not {"start", "end"} <= set(found) or name_column is None:
        return None
    name = interned(name_column, strings, names, "(unnamed kernel)")
    collective = _collectives(name, names)
    kind = np.where(collective != NONE, DeviceKind.COLLECTIVE, DeviceKind.KERNEL).astype(np.uint8)
    extra = {
        "grid": _triples(found, "grid", names),
        "block": _triples(found, "block", names),
        "registers": _optional(found, "registersPerThread", len(name)),
        "shared_bytes": _shared(found, len(name)),
        "graph_node": _optional(found, "graphNodeId", len(name)),
        "collective": collective,
    }
    return _rows(found, kind, name, extra)


def _copies(database: Database, names: Names) -> DeviceRows | None:
    found = database.integers("CUPTI_ACTIVITY_KIND_MEMCPY", _COPY)
    if not {"start", "end"} <= set(found):
        return None
    count = len(found["start"].values)
    how = _optional(found, "copyKind", count)
    source, target = _ends(found, how, count)
    name = _labelled(
        names,
        lambda h, s, t: f"Memcpy {_DIRECTION.get(h, '?')} ({_end_name(s)} -> {_end_name(t)})",
        how, source, target,
    )  # fmt: skip
    extra = {
        "bytes": _optional(found, "bytes", count),
        "from_memory": source,
        "to_memory": target,
        "graph_node": _optional(found, "graphNodeId", count),
    }
    kind = np.full(count, DeviceKind.COPY, np.uint8)
    return _rows(found, kind, name, extra)


def _memsets(database: Database, names: Names) -> DeviceRows | None:
    found = database.integers(
        "CUPTI_ACTIVITY_KIND_MEMSET", (*_COMMON, "bytes", "memKind", "graphNodeId")
    )
    if not {"start", "end"} <= set(found):
        return None
    count = len(found["start"].values)
    target = _translated(_optional(found, "memKind", count), _MEMORY, MemoryKind.DEVICE)
    name = _labelled(names, lambda t: f"Memset ({_end_name(t)})", target)
    extra = {
        "bytes": _optional(found, "bytes", count),
        "to_memory": target,
        "graph_node": _optional(found, "graphNodeId", count),
    }
    kind = np.full(count, DeviceKind.MEMSET, np.uint8)
    return _rows(found, kind, name, extra)


def _graphs(database: Database, names: Names) -> DeviceRows | None:
    """Whole replays of CUDA graphs, recorded instead of their kernels in graph mode."""
    found = database.integers("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", (*_COMMON, "graphId"))
    if not {"start", "end"} <= set(found):
        return None
    count = len(found["start"].values)
    graph = _optional(found, "graphId", count)
    name = _labelled(names, lambda g: f"CUDA graph {g}" if g >= 0 else "CUDA graph", graph)
    rows = _rows(found, np.full(count, DeviceKind.KERNEL, np.uint8), name, {})
    return replace(rows, whole_graphs=True)


def _rows(
    found: Mapping[str, Column],
    kind: Codes,
    name: NameIds,
    extra: Mapping[str, Ints],
) -> DeviceRows:
    """Only rows whose times make sense: buffers that overflow leave 0 to 0, or an end too early."""
    start, end = found["start"], found["end"]
    sane = ~start.missing & ~end.missing & (np.abs(start.values) < _SANE_NS)
    sane &= (np.abs(end.values) < _SANE_NS) & (end.values >= start.values)
    sane &= (start.values != 0) | (end.values != 0)
    pid = _optional(found, "globalPid", len(name))
    columns: dict[str, Any] = {
        "device": np.maximum(_optional(found, "deviceId", len(name)), 0),
        "context": _optional(found, "contextId", len(name)),
        "stream": _optional(found, "streamId", len(name)),
        "correlation": _optional(found, "correlationId", len(name)),
        "pid": pid_of(pid),
    }
    wanted: Any = slice(None) if sane.all() else sane  # all of them need no copies
    return DeviceRows(
        start.values[wanted],
        end.values[wanted],
        kind[wanted],
        name[wanted],
        **{k: v[wanted] for k, v in columns.items()},
        extra={k: v[wanted] for k, v in extra.items() if np.any(v != NONE)},
        dropped=int((~sane).sum()),
    )


def _labelled(names: Names, label: Callable[..., str], *columns: Ints) -> NameIds:
    """A name for each row, made once per distinct combination of the columns."""
    distinct, which = distinct_rows(*columns)
    positions = names.ids_of(label(*row) for row in distinct.tolist())
    return np.array(positions, np.int32).reshape(-1)[which]


def _optional(found: Mapping[str, Column], column: str, count: int) -> Ints:
    if column not in found:
        return np.broadcast_to(np.int64(NONE), count)
    return found[column].filled(NONE)


def _shared(found: Mapping[str, Column], count: int) -> Ints:
    static, dynamic = (
        _optional(found, c, count) for c in ("staticSharedMemory", "dynamicSharedMemory")
    )
    return np.where(
        (static < 0) & (dynamic < 0), NONE, np.maximum(static, 0) + np.maximum(dynamic, 0)
    )


def _triples(found: Mapping[str, Column], prefix: str, names: Names) -> Ints:
    parts = [found.get(f"{prefix}{axis}") for axis in "XYZ"]
    if any(part is None for part in parts):
        return np.broadcast_to(np.int64(NONE), len(found["start"].values))
    given = [part.filled(NONE) for part in parts if part is not None]
    text = _labelled(names, lambda *row: json.dumps(row, separators=(",", ":")), *given)
    return np.where(np.minimum.reduce(given) < 0, NONE, text)


def _collectives(name: NameIds, names: Names) -> Ints:
    kinds = np.full(len(names), NONE, np.int64)
    for position in np.unique(name).tolist():
        if (kind := collective_kind(names[position])) is not None:
            kinds[position] = names.id_of(kind)
    return kinds[name]


def _ends(found: Mapping[str, Column], how: Ints, count: int) -> tuple[Ints, Ints]:
    """MemoryKind of source and target; from the copy's direction where the file says no more."""
    ends = []
    for side, column in enumerate(("srcKind", "dstKind")):
        fallback = {k: pair[side] for k, pair in _ENDS.items()}
        by_direction = _translated(how, fallback, MemoryKind.DEVICE)
        given = _translated(_optional(found, column, count), _MEMORY, NONE)
        ends.append(np.where((given == NONE) | (how >= _UNIFIED), by_direction, given))
    one, other = (_optional(found, c, count) for c in ("srcDeviceId", "dstDeviceId"))
    between = (how == 10) | ((how == 8) & (one >= 0) & (other >= 0) & (one != other))
    ends[1] = np.where(between, MemoryKind.PEER, ends[1])
    return ends[0], ends[1]


def _translated(codes: Ints, table: Mapping[int, int], default: int) -> Ints:
    lookup = np.full(max(table) + 2, default, np.int64)
    for code, value in table.items():
        lookup[code] = value
    known = (codes >= 0) & (codes <= max(table))
    return lookup[np.where(known, codes, max(table) + 1)]


def _end_name(memory: int) -> str:
    return _END_NAME.get(MemoryKind(memory), "?")
