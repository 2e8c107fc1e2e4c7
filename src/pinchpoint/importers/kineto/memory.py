"""Allocator events that the profiler wrote with ``profile_memory=True``."""

import numpy as np

from pinchpoint.importers.kineto.columns import known, known_32
from pinchpoint.importers.kineto.fields import NULL, PLACE, Lane
from pinchpoint.importers.kineto.host import Sources
from pinchpoint.trace import Table, table

_HOST_MEMORY = 0  # c10::DeviceType::CPU


def allocation_table(sources: Sources) -> Table | None:
    """One row an allocation or release; None if the file has none."""
    columns = sources.columns
    if not columns.rows(Lane.MEMORY):
        sources.clock.starts.pop(Lane.MEMORY)
        return None
    spans = sources.clock.spans(columns, Lane.MEMORY, timed_only=True)
    taken = {
        name: spans.of(columns.take(Lane.MEMORY, name))
        for name in (
            "memory_bytes",
            "address",
            "memory_device",
            "memory_device_type",
            "total_allocated",
            "total_reserved",
        )
    }
    size = taken["memory_bytes"]
    on_host = taken["memory_device_type"] == _HOST_MEMORY
    device, no_device = known_32(taken["memory_device"])
    address, no_address = known(taken["address"])
    allocated, no_allocated = known(taken["total_allocated"])
    reserved, no_reserved = known(taken["total_reserved"])
    out = {
        "time_ns": spans.start,
        "address": np.where(no_address, 0, address).astype(np.uint64),
        "bytes": np.where(size == NULL, 0, size),
        "device": device,
        "allocated_bytes": allocated,
        "reserved_bytes": reserved,
        "thread": spans.of(sources.threads.positions(columns.take(Lane.MEMORY, PLACE))),
    }
    if sources.rank is not None:
        out["rank"] = np.full(len(size), sources.rank, np.int32)
    missing = {
        "address": no_address,
        "device": no_device | on_host,
        "allocated_bytes": no_allocated,
        "reserved_bytes": no_reserved,
    }
    return table("allocations", out, missing)
