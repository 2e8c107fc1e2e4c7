"""Waits between streams and of the host, as CUPTI reports them."""

import numpy as np

from pinchpoint.importers.nsys.database import Database
from pinchpoint.importers.nsys.processes import ProcessKeys, pid_of
from pinchpoint.trace import FlowKind, Table, table
from pinchpoint.trace.arrays import Ints

NONE = -1
_STREAM_WAIT = 2  # syncType: a stream waits for an event; the host does not
_SANE_NS = 2**61


def read_flows(database: Database, process: ProcessKeys, origin: int) -> Table | None:
    """Waits as CUPTI reports them; None if synchronisation was not recorded.

    A stream that waits for an event is joined with the record of that event, by the id of the
    synchronisation where the file has one (event handles are reused).
    """
    found = database.integers(
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        ("start", "end", "deviceId", "streamId", "globalPid", "syncType", "eventSyncId"),
    )
    if not {"start", "end", "syncType"} <= set(found):
        return None
    start, end = found["start"].filled(NONE), found["end"].filled(NONE)
    sane = (start >= 0) & (end >= start) & (end < _SANE_NS)
    column = {k: v.filled(NONE)[sane] for k, v in found.items()}
    order = np.argsort(column["start"], kind="stable")
    column = {k: v[order] for k, v in column.items()}
    count = len(order)
    waits = column["syncType"] == _STREAM_WAIT
    recorded = _records(database, process, column, count)
    stream = column.get("streamId", np.full(count, NONE))
    stream = np.where(stream >= 2**32 - 1, NONE, stream)
    device = column.get("deviceId", np.full(count, NONE))
    return table(
        "flows",
        {
            "start_ns": column["start"] - origin,
            "end_ns": column["end"] - origin,
            "kind": np.where(waits, FlowKind.EVENT_WAIT, FlowKind.DEVICE_SYNC),
            "from_correlation": recorded,
            "to_stream": stream,
            "device": device,
        },
        {
            "from_correlation": (recorded == NONE) | ~waits,
            "to_stream": stream == NONE,
            "device": device == NONE,
        },
    )


def _records(database: Database, process: ProcessKeys, waits: dict[str, Ints], count: int) -> Ints:
    """Correlation of the event record that each wait depends on, or -1."""
    joined = np.full(count, NONE, np.int64)
    events = database.integers(
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT", ("globalPid", "correlationId", "eventSyncId")
    )
    if "eventSyncId" not in waits or not {"correlationId", "eventSyncId"} <= set(events):
        return joined
    sync, correlation = events["eventSyncId"].filled(NONE), events["correlationId"].filled(NONE)
    pid = events["globalPid"].filled(NONE) if "globalPid" in events else np.full(len(sync), NONE)
    keys = process.keyed(pid_of(pid), sync)
    order = np.argsort(keys, kind="stable")
    wait_pid = pid_of(waits.get("globalPid", np.full(count, NONE)))
    asked = process.keyed(wait_pid, waits["eventSyncId"])
    place = np.minimum(np.searchsorted(keys[order], asked), max(len(order) - 1, 0))
    if len(order):
        hit = (keys[order][place] == asked) & (waits["eventSyncId"] >= 0)
        joined[hit] = process.keyed(pid_of(pid), correlation)[order][place[hit]]
    return joined
