"""Allocations of device memory, as XLA's allocator marks them on the host's threads."""

import re
from typing import Any

from pinchpoint.importers.xplane.space import Event

_SIGN = {"MemoryAllocation": 1, "MemoryDeallocation": -1}
_DEVICE = re.compile(r"(?:GPU|TPU)_(\d{1,5})_")  # GPU_0_bfc
_MOST_BYTES = 1 << 62


def allocation_row(event: Event, time_ns: int, thread: int) -> dict[str, Any] | None:
    """A row of ``allocations``; None for other events, and for memory of unknown size."""
    sign, size = _SIGN.get(event.name), _whole(event, "allocation_bytes")
    if sign is None or size is None:
        return None
    device = _DEVICE.match(str(event.stats.get("allocator_name", "")))
    return {
        "time_ns": time_ns,
        "address": _whole(event, "addr"),
        "bytes": sign * size,
        "device": int(device[1]) if device else None,
        "allocated_bytes": _whole(event, "bytes_allocated"),
        "reserved_bytes": None,  # XLA's bytes_reserved is memory kept for stacks
        "thread": thread,
    }


def _whole(event: Event, stat: str) -> int | None:
    value = event.stats.get(stat)
    return value if isinstance(value, int) and 0 <= value < _MOST_BYTES else None
