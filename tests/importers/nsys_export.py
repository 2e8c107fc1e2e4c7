"""Writes small nsys exports, so that a test knows what is in them."""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PID_A, PID_B = 111, 222


def tid(pid: int, thread: int | None = None) -> int:
    """A global thread id of nsys."""
    return (1 << 48) | (pid << 24) | (pid if thread is None else thread)


def pid(process: int) -> int:
    """A global process id of nsys."""
    return (1 << 48) | (process << 24)


def write(path: Path, tables: Mapping[str, Sequence[Mapping[str, Any]]], script: str = "") -> Path:
    """An export with these rows; the columns of a table are those of its first row."""
    with sqlite3.connect(path) as connection:
        for name, rows in tables.items():
            columns = list(rows[0])
            connection.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
            marks = ", ".join("?" for _ in columns)
            for row in rows:
                connection.execute(
                    f"INSERT INTO {name} VALUES ({marks})", [row.get(c) for c in columns]
                )
        connection.executescript(script)
    connection.close()
    return path


def strings(*texts: str) -> list[dict[str, Any]]:
    """StringIds; the first text has id 0."""
    return [{"id": i, "value": text} for i, text in enumerate(texts)]


def kernel(start: int, end: int, correlation: int, name: int = 0, **more: Any) -> dict[str, Any]:
    """A row of CUPTI_ACTIVITY_KIND_KERNEL."""
    row = {
        "start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7,
        "correlationId": correlation, "globalPid": pid(PID_A), "demangledName": name,
        "shortName": name, "registersPerThread": 32, "gridX": 2, "gridY": 3, "gridZ": 1,
        "blockX": 128, "blockY": 1, "blockZ": 1, "staticSharedMemory": 16,
        "dynamicSharedMemory": 1024, "graphNodeId": None,
    }  # fmt: skip
    return row | more


def call(start: int, end: int, correlation: int, name: int, **more: Any) -> dict[str, Any]:
    """A row of CUPTI_ACTIVITY_KIND_RUNTIME."""
    row = {
        "start": start, "end": end, "eventClass": 0, "globalTid": tid(PID_A),
        "correlationId": correlation, "nameId": name, "returnValue": 0,
    }  # fmt: skip
    return row | more


def copy(start: int, end: int, correlation: int, how: int, **more: Any) -> dict[str, Any]:
    """A row of CUPTI_ACTIVITY_KIND_MEMCPY."""
    row = {
        "start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7,
        "correlationId": correlation, "globalPid": pid(PID_A), "bytes": 4096, "copyKind": how,
        "srcKind": None, "dstKind": None, "srcDeviceId": None, "dstDeviceId": None,
    }  # fmt: skip
    return row | more


def nvtx(start: int, end: int | None, text: str | None, **more: Any) -> dict[str, Any]:
    """A row of NVTX_EVENTS."""
    row = {
        "start": start, "end": end, "eventType": 59, "text": text, "textId": None,
        "globalTid": tid(PID_A), "endGlobalTid": None, "domainId": 0, "binaryData": None,
    }  # fmt: skip
    return row | more
