"""From collected rows and the outer structure of a snapshot to a :class:`MemorySnapshot`."""

from array import array
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.memory_snapshot.collect import NONE, Collector
from pinchpoint.importers.memory_snapshot.pickle_state import Rows
from pinchpoint.trace import Mark, MemorySnapshot, Names, Stacks, Table, empty_table, table
from pinchpoint.trace.arrays import Array, Mask

MAX_BLOCK_BYTES = 1 << 46  # no device has 64 TiB

_READ_KEYS = {"segments", "device_traces", "allocator_settings", "external_annotations"}


def assemble(root: Any, rows: Collector, *, complete: bool, name: str) -> MemorySnapshot:
    """The snapshot; UnreadableFile if the pickle holds something else."""
    if not isinstance(root, Mapping) or not ({"segments", "device_traces"} & set(root)):
        raise UnreadableFile(
            f"{name}: a pickle, but not of a memory snapshot",
            hint="write one with torch.cuda.memory._dump_snapshot(path)",
        )
    segments, blocks = _segments_and_blocks(rows)
    events = _events(root.get("device_traces"), rows)
    for sizes in (events["bytes"], segments["bytes"], blocks["bytes"]):
        if len(sizes) and not 0 <= int(sizes.min()) <= int(sizes.max()) <= MAX_BLOCK_BYTES:
            raise ValueError
    for addresses in (events["address"], segments["address"], blocks["address"]):
        if len(addresses) and int(addresses.max()) > (1 << 64) - 2 * MAX_BLOCK_BYTES:
            raise ValueError
    return MemorySnapshot(
        events=events,
        segments=segments,
        blocks=blocks,
        stacks=_stacks(rows),
        marks=tuple(_marks(root.get("external_annotations"))),
        settings=MappingProxyType(dict(_mapping(root.get("allocator_settings")))),
        complete=complete,
        unread_keys=tuple(sorted(str(key) for key in set(root) - _READ_KEYS)),
    )


def _events(traces: Any, rows: Collector) -> Table:
    columns = rows.events
    count = len(columns.action)
    if not count:
        return empty_table("allocator_events")
    device = np.zeros(count, np.int32)
    for number, trace in enumerate(_list(traces)):
        for part in _parts(trace, "event"):
            device[part.start : part.end] = number
    rare = _rare_columns(rows, count)
    time_us, stack = _view(columns.time_us), _view(columns.stack)
    return table(
        "allocator_events",
        {
            "device": device,
            "action": _view(columns.action),
            "address": _view(columns.address),
            "bytes": _view(columns.bytes),
            "stream": _view(columns.stream),
            "time_us": time_us,
            "stack": stack,
            **{key: values for key, (values, _) in rare.items()},
        },
        {
            "time_us": time_us == NONE,
            "stack": stack == NONE,
            "address": _no_address(rows, count),
            **{key: missing for key, (_, missing) in rare.items()},
        },
    )


def _rare_columns(rows: Collector, count: int) -> dict[str, tuple[Array, Mask]]:
    out = {}
    for key in ("pool", "note", "free_bytes"):
        found = {row: r[key] for row, r in rows.events.rare.items() if r[key] is not None}
        if found:
            values = np.zeros(count, np.int64)
            missing = np.ones(count, np.bool_)
            at = np.fromiter(found, np.intp, len(found))
            values[at] = [_number(v, rows.names) for v in found.values()]
            missing[at] = False
            out[key] = (values, missing)
    return out


def _no_address(rows: Collector, count: int) -> Mask:
    missing = np.zeros(count, np.bool_)
    missing[[row for row, r in rows.events.rare.items() if r["no_address"]]] = True
    return missing


def _number(value: Any, names: Names) -> int:
    return names.id_of(value) if isinstance(value, str) else int(value)


def _segments_and_blocks(rows: Collector) -> tuple[Table, Table]:
    segments = rows.segments
    if not segments:
        return empty_table("allocator_segments"), empty_table("allocator_blocks")
    parts = [next(_parts(s.get("blocks"), "block"), Rows("block", 0, 0)) for s in segments]
    pools = [_pool(s.get("segment_pool_id"), rows.names) for s in segments]
    first = np.array([p.start for p in parts], np.int64)
    number = np.array([p.end - p.start for p in parts], np.int64)
    address = np.array([s["address"] for s in segments], np.uint64)
    segment_table = table(
        "allocator_segments",
        {
            "device": np.array([s.get("device", 0) for s in segments], np.int64),
            "address": address,
            "bytes": np.array([s["total_size"] for s in segments], np.int64),
            "stream": np.array([s.get("stream", 0) for s in segments], np.uint64),
            "small": np.array([s.get("segment_type") == "small" for s in segments]),
            "expandable": np.array([bool(s.get("is_expandable")) for s in segments]),
            "pool": np.array([p or 0 for p in pools], np.int64),
            "first_block": first,
            "blocks": number,
        },
        {"pool": np.array([p is None for p in pools])},
    )
    return segment_table, _blocks(rows, np.repeat(np.arange(len(segments)), number), address)


def _blocks(rows: Collector, segment: Array, segment_address: NDArray[np.uint64]) -> Table:
    columns = rows.blocks
    count = len(columns.bytes)
    if len(segment) != count:  # a block outside of any segment: cut off, or not a snapshot
        count = min(count, len(segment))
        segment = segment[:count]
    size = _view(columns.bytes)[:count]
    address = _view(columns.address)[:count].copy()
    if count and not address.all():  # torch 2.0: blocks follow one another from the segment's start
        ends = np.cumsum(size)
        first = np.searchsorted(segment, segment)
        within = ends - size - (ends - size)[first]
        address = segment_address[segment] + within.astype(np.uint64)
    requested, stack = _view(columns.requested)[:count], _view(columns.stack)[:count]
    return table(
        "allocator_blocks",
        {
            "segment": segment,
            "address": address,
            "bytes": size,
            "requested_bytes": requested,
            "state": _view(columns.state)[:count],
            "stack": stack,
        },
        {"requested_bytes": requested == NONE, "stack": stack == NONE},
    )


def _stacks(rows: Collector) -> Stacks:
    lengths = np.fromiter((len(s) for s in rows.stacks), np.int64, len(rows.stacks))
    flat = np.fromiter((f for s in rows.stacks for f in s), np.int32, int(lengths.sum()))
    return Stacks(tuple(rows.frames), np.concatenate(([0], np.cumsum(lengths))), flat)


def _marks(annotations: Any) -> Iterator[Mark]:
    for one in _list(annotations):
        if isinstance(one, Mapping) and one.get("stage") in ("START", "END"):
            when = one.get("time_us")
            yield Mark(
                str(one.get("name", "")),
                one["stage"] == "START",
                int(one.get("device", 0)),
                when if isinstance(when, int) else None,
            )


def _parts(items: Any, kind: str) -> Iterator[Rows]:
    return (item for item in _list(items) if type(item) is Rows and item.kind == kind)


def _pool(value: Any, names: Names) -> int | None:
    if not isinstance(value, list | tuple) or len(value) != 2 or tuple(value) == (0, 0):
        return None
    return names.id_of(f"{value[0]}, {value[1]}")


def _view(column: "array[Any]") -> Array:
    return (
        np.frombuffer(column, dtype=column.typecode)
        if len(column)
        else np.zeros(0, column.typecode)
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
