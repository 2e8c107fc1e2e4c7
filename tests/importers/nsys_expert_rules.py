"""The conditions of the rules that ``nsys analyze`` comes with, asked of an export by SQL alone.

They say what NVIDIA's documentation of the rules says; the tests compare what they report with
what our tables and analyses hold of the same file.
"""

import sqlite3
from collections.abc import Iterator
from itertools import pairwise

Row = tuple[int, int]  # start and end, nanoseconds of the file

GAP_NS = 500_000_000  # shorter idle time is no gap to them
CHUNKS, IN_USE_RATIO = 30, 0.5
SMALL_COPY_BYTES = 64_000

_COPY_CALLS = """
    SELECT m.start, m.end FROM CUPTI_ACTIVITY_KIND_MEMCPY m
    JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
      ON r.correlationId = m.correlationId AND (r.globalTid >> 24) = (m.globalPid >> 24)
    JOIN StringIds s ON s.id = r.nameId WHERE
"""
_TABLES = ("KERNEL", "MEMCPY", "MEMSET")


def pageable_copies(export: sqlite3.Connection) -> list[Row]:
    """cuda_memcpy_async: asynchronous copies from or to pageable memory."""
    where = "s.value LIKE 'cudaMemcpy%Async%' AND (m.srcKind = 0 OR m.dstKind = 0)"
    return _rows(export, f"{_COPY_CALLS} {where} ORDER BY 1", "MEMCPY", "RUNTIME")


def synchronous_copies(export: sqlite3.Connection) -> list[Row]:
    """cuda_memcpy_sync: the others, but small ones to the device and those inside one device."""
    where = f"""
        s.value LIKE 'cudaMemcpy%' AND s.value NOT LIKE '%Async%' AND m.copyKind <> 8
        AND NOT (m.copyKind = 1 AND m.bytes <= {SMALL_COPY_BYTES})
    """
    return _rows(export, f"{_COPY_CALLS} {where} ORDER BY 1", "MEMCPY", "RUNTIME")


def synchronous_memsets(export: sqlite3.Connection) -> list[Row]:
    """cuda_memset_sync: memsets of pinned or managed memory that are not asynchronous."""
    query = """
        SELECT m.start, m.end FROM CUPTI_ACTIVITY_KIND_MEMSET m
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
          ON r.correlationId = m.correlationId AND (r.globalTid >> 24) = (m.globalPid >> 24)
        JOIN StringIds s ON s.id = r.nameId
        WHERE s.value LIKE 'cudaMemset%' AND s.value NOT LIKE '%async%' AND m.memKind IN (1, 4)
        ORDER BY 1
    """
    return _rows(export, query, "MEMSET", "RUNTIME")


def synchronising_calls(export: sqlite3.Connection) -> list[Row]:
    """cuda_api_sync: calls that wait for a device or a stream."""
    query = """
        SELECT r.start, r.end FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId
        WHERE s.value LIKE 'cudaDeviceSynchronize%' OR s.value LIKE 'cudaStreamSynchronize%'
        ORDER BY 1
    """
    return _rows(export, query, "RUNTIME")


def gaps(export: sqlite3.Connection) -> dict[int, list[Row]]:
    """gpu_gaps: by device, time of at least GAP_NS between its operations."""
    found = {}
    for device, rows in _operations(export).items():
        reach, idle = rows[0][1], []
        for start, end in rows:
            if start - reach >= GAP_NS:
                idle.append((reach, start))
            reach = max(reach, end)
        found[device] = idle
    return found


def idle_chunks(export: sqlite3.Connection) -> dict[int, list[Row]]:
    """gpu_time_util: by device, which of CHUNKS equal parts have less than half in use."""
    return {device: list(_idle_chunks(rows)) for device, rows in _operations(export).items()}


def _idle_chunks(rows: list[Row]) -> Iterator[Row]:
    first, last = rows[0][0], max(end for _, end in rows)
    edges = [first + (last - first) * i // CHUNKS for i in range(CHUNKS + 1)]
    for low, high in pairwise(edges):
        used = sum(max(min(end, high) - max(start, low), 0) for start, end in rows)
        if used < IN_USE_RATIO * (high - low):
            yield low, high


def _operations(export: sqlite3.Connection) -> dict[int, list[Row]]:
    """Operations of each device, in order; devices without a length are left out."""
    parts = [
        f"SELECT deviceId, start, end FROM CUPTI_ACTIVITY_KIND_{t}"
        for t in _TABLES
        if _there(export, t)
    ]
    found: dict[int, list[Row]] = {}
    for device, start, end in export.execute(" UNION ALL ".join(parts) + " ORDER BY 2"):
        found.setdefault(device, []).append((start, end))
    return found


def _rows(export: sqlite3.Connection, query: str, *tables: str) -> list[Row]:
    return export.execute(query).fetchall() if all(_there(export, t) for t in tables) else []


def _there(export: sqlite3.Connection, table: str) -> bool:
    """Whether the table exists and has rows: some exports leave columns out where it has none."""
    name = f"CUPTI_ACTIVITY_KIND_{table}"
    query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
    if not export.execute(query, (name,)).fetchone()[0]:
        return False
    return export.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() is not None
