"""What a device's plane says: the device itself, and one operation on it."""

import json
import re
from typing import Any

from pinchpoint.importers.xplane.space import Event, Plane, Value
from pinchpoint.trace import Device, DeviceKind, MemoryKind
from pinchpoint.trace.call_names import collective_kind

_PAIRS = re.compile(r"(\w+):(\S+)")  # regs:32 grid:8192,1,1, and kind_src:device size:4
_COPY = re.compile(r"Memcpy(?P<from>[HD])2(?P<to>[HD])", re.IGNORECASE)
_MEMORY = {
    "device": MemoryKind.DEVICE,
    "pinned": MemoryKind.PINNED,
    "pageable": MemoryKind.PAGEABLE,
    "host": MemoryKind.HOST,
    "managed": MemoryKind.UNIFIED,
    "array": MemoryKind.ARRAY,
    "h": MemoryKind.HOST,
    "d": MemoryKind.DEVICE,
}
_MOST = 1 << 31  # numbers of a launch are smaller


def device_of(plane: Plane, number: int, kind: str) -> Device:
    """The device that a plane describes."""
    stats = plane.stats
    major, minor = _whole(stats, "compute_cap_major"), _whole(stats, "compute_cap_minor")
    name, vendor = stats.get("gpu_device_name"), stats.get("device_vendor")
    return Device(
        number,
        str(name) if name else None,
        _whole(stats, "memory_size"),
        _whole(stats, "core_count"),
        (major, minor) if major is not None and minor is not None else None,
        str(vendor).lower() if vendor else ("google" if kind == "TPU" else None),
    )


def _whole(stats: dict[str, Value], name: str) -> int | None:
    value = stats.get(name)
    return value if isinstance(value, int) else None


def device_row(
    event: Event, start_ns: int, duration_ns: int, device: int, stream: int
) -> dict[str, Any]:
    """A row of ``device_ops``."""
    stats = event.stats
    row: dict[str, Any] = {
        "start_ns": start_ns,
        "duration_ns": duration_ns,
        "name": event.name,
        "kind": DeviceKind.KERNEL,
        "device": device,
        "stream": stream if stream < _MOST else None,
        "correlation": _small(stats.get("correlation_id"), 1 << 62),
        "graph_node": _small(stats.get("cuda_graph_node_id"), 1 << 62),
    }
    if event.name.lower().startswith("memcpy"):
        return row | _copy(event)
    if event.name.lower().startswith("memset"):
        pairs = dict(_PAIRS.findall(str(stats.get("memset_details", ""))))
        size = _decimal(pairs.get("num_bytes") or pairs.get("size"), 1 << 62)
        return row | {"kind": DeviceKind.MEMSET, "bytes": size}
    collective = collective_kind(event.name)
    if collective is not None:
        row |= {"kind": DeviceKind.COLLECTIVE, "collective": collective}
    return row | _launch(str(stats.get("kernel_details", "")))


def _copy(event: Event) -> dict[str, Any]:
    pairs = dict(_PAIRS.findall(str(event.stats.get("memcpy_details", ""))))
    named = _COPY.match(event.name)
    ends = (named["from"], named["to"]) if named else ("", "")
    source, target = str(pairs.get("kind_src", ends[0])), str(pairs.get("kind_dst", ends[1]))
    return {
        "kind": DeviceKind.COPY,
        "bytes": _decimal(pairs.get("size") or pairs.get("num_bytes"), 1 << 62),
        "from_memory": _MEMORY.get(source.lower()),
        "to_memory": _MEMORY.get(target.lower()),
    }


def _launch(details: str) -> dict[str, Any]:
    pairs = dict(_PAIRS.findall(details))
    fixed = _decimal(pairs.get("static_shared"), _MOST // 2)
    dynamic = _decimal(pairs.get("dynamic_shared"), _MOST // 2)
    return {
        "grid": _shape(pairs.get("grid")),
        "block": _shape(pairs.get("block")),
        "registers": _decimal(pairs.get("regs"), _MOST),
        "shared_bytes": None if fixed is None or dynamic is None else fixed + dynamic,
        "occupancy_percent": _percent(pairs.get("occ_pct")),
    }


def _shape(text: str | None) -> str | None:
    numbers = [_decimal(part, _MOST) for part in (text or "").split(",")]
    return None if None in numbers else json.dumps(numbers)


def _decimal(text: str | None, limit: int) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 19:
        return None
    return _small(int(text), limit)


def _small(number: Value | None, limit: int) -> int | None:
    return number if isinstance(number, int) and 0 <= number < limit else None


def _percent(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"\d{1,3}(\.\d{1,9})?", text) else None
