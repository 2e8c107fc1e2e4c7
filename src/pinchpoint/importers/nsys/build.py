"""From the tables of an export to a Trace: one clock, one numbering, every row linked."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pinchpoint.importers.assembly.soundness import (
    clocks,
    lost_launches,
    no_calls,
    sharing,
    stream_order,
    who,
)
from pinchpoint.importers.files.database import Database
from pinchpoint.importers.health import Fact, health_table
from pinchpoint.importers.nsys import device_table, host_table
from pinchpoint.importers.nsys.database import read_strings
from pinchpoint.importers.nsys.device import DeviceRows, read_device_rows
from pinchpoint.importers.nsys.host import (
    Calls,
    read_api_calls,
    read_os_calls,
    read_overhead,
    read_samples,
)
from pinchpoint.importers.nsys.host_table import ProcessKeys, ThreadIndex, pid_of
from pinchpoint.importers.nsys.nvtx import Ranges, find_steps, read_payloads, read_ranges
from pinchpoint.importers.nsys.session import (
    NsysSession,
    by_weight,
    read_session,
    thread_labels,
    with_next_step,
)
from pinchpoint.regex import regex
from pinchpoint.trace import Device, FlowKind, Names, Source, Table, Thread, Trace, table
from pinchpoint.trace.arrays import Ints, distinct_rows

# ------------------------------------------------------------------------------------------------
# Samples of GPU metrics, taken with ``--gpu-metrics-devices``.


_SANE_NS = 2**61  # times beyond it are damage, and would overflow in sums


def read_counters(database: Database, names: Names, origin: int) -> Table | None:
    """GPU metric samples; None if none were taken. The names keep their unit, as nsys has them."""
    found = database.integers(
        "GPU_METRICS", ("timestamp", "rawTimestamp", "typeId", "metricId", "value")
    )
    time = found.get("timestamp", found.get("rawTimestamp"))
    if time is None or not {"typeId", "metricId", "value"} <= set(found):
        return None
    known = {
        (type_id, metric_id): str(name)
        for type_id, metric_id, name in database.rows(
            "TARGET_INFO_GPU_METRICS", ("typeId", "metricId", "metricName")
        )
    }
    distinct, which = distinct_rows(found["typeId"].values, found["metricId"].values)
    texts = [known.get((t, m), f"GPU metric {m}") for t, m in distinct.tolist()]
    name = np.array(names.ids_of(texts), np.int32).reshape(-1)[which]
    keep = ~time.missing & ~found["value"].missing & (np.abs(time.values) < _SANE_NS)
    order = np.flatnonzero(keep)
    order = order[np.argsort(time.values[order], kind="stable")]
    return table(
        "counters",
        {
            "time_ns": time.values[order] - origin,
            "name": name[order],
            "value": found["value"].values[order].astype(np.float64),
            "device": found["typeId"].values[order] & 0xFF,
        },
    )


# ------------------------------------------------------------------------------------------------
# Waits between streams and of the host, as CUPTI reports them.


NONE = -1  # no position of a row
_STREAM_WAIT = 2  # syncType: a stream waits for an event; the host does not


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


# ------------------------------------------------------------------------------------------------
# What an export should hold by its own account and does not.


_MOST_NAMED, _LONGEST_NAME = 5, 60  # of what is passed over: enough to know the file by
_NEWER_FORM = regex(r"(CUPTI_ACTIVITY_KIND_\w+|NVTX_EVENTS)_V\d+")


def unread_tables(database: Database) -> Iterator[Fact]:
    """Tables whose name says that they are a newer form of one that is read."""
    unread = sorted(name for name in database.columns if _NEWER_FORM.fullmatch(name))
    if unread:
        yield Fact("tables-unread", len(unread), f"tables of an unknown form: {', '.join(unread)}")


_READ = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")


def _passed_over(database: Database) -> Iterator[Fact]:
    """Views and virtual tables, of which the first are named."""
    names = sorted(name[:_LONGEST_NAME] for name in database.passed_over)
    if names:
        yield Fact("tables-passed-over", len(names), ", ".join(names[:_MOST_NAMED]))


def empty_tables(database: Database) -> Iterator[Fact]:
    """Tables without rows, which nsys does not write, and a file without its texts."""
    found = [t for t in _READ if t in database.columns and _is_empty(database, t)]
    if found:
        yield Fact("tables-empty", len(found), f"tables without rows: {', '.join(found)}")
    if any(t in database.columns for t in _READ[:2]) and _is_empty(database, "StringIds"):
        yield Fact("names-missing")


def _is_empty(database: Database, table: str) -> bool:
    columns = database.columns.get(table, ())
    return next(database.rows(table, columns[:1]), None) is None


# ------------------------------------------------------------------------------------------------
# From the tables of an export to a Trace: one clock, one numbering, every row linked.


# nsys warns of each kind of event that was asked for and did not occur, graphics mostly, and of
# what only its samples of the CPU lack: symbols, and the right to look into the kernel of Linux.
_IRRELEVANT = regex(
    r"^No (?!CUDA|NVTX).* events collected|^Not all (?!CUDA).* events might have been"
    r"|^Failed to load symbols|^Unable to collect CPU kernel"
)


def build(database: Database, bytes_on_disk: int) -> Trace:
    """The whole trace of an export."""
    names, strings, session = Names(), read_strings(database), read_session(database)
    device = tuple(read_device_rows(database, strings, names))
    api = read_api_calls(database, strings, names)
    calls = _other_calls(database, strings, names)
    last = max((int(s.end.max()) for s in (*device, *calls, api) if s and len(s.start)), default=0)
    ranges = read_ranges(database, strings, names, last)
    origin = _first(*device, *calls, api, ranges)
    payloads = {} if ranges is None else read_payloads(database, strings)
    ranks = _ranks(ranges, payloads)
    tids = [s.tid for s in (*calls, api, ranges) if s is not None]
    tids_seen = np.concatenate([np.zeros(0, np.int64), *tids])
    threads = ThreadIndex(tids_seen, thread_labels(database, strings), ranks)
    pids = [rows.pid for rows in device] + ([] if api is None else [pid_of(api.tid)])
    pids_seen = np.concatenate([np.zeros(0, np.int64), *pids])
    processes = ProcessKeys(pids_seen)
    host = host_table.assemble(ranges, calls, threads, origin)
    api_calls = host_table.api_table(api, host, threads, processes, origin)
    ops = device_table.assemble(
        device, api_calls, threads, processes, session.device_numbers, origin
    )
    device_ops = None if ops is None else ops.table
    if device_ops is not None and host is not None:
        device_ops = device_table.with_payloads(device_ops, host, payloads, names)
    steps = None if ranges is None else find_steps(ranges, names)
    described = _devices(session, device_ops)
    one = len(ranks) == len(set(pids_seen.tolist())) == 1
    rank = next(iter(ranks.values())) if one else None
    tables: dict[str, Any] = {
        "host_ops": None if host is None else host.table,
        "api_calls": None if api_calls is None else api_calls.table,
        "device_ops": device_ops,
        "device_annotations": device_table.annotations(device_ops, api_calls, host),
        "flows": read_flows(database, processes, origin),
        "steps": host_table.steps_table(ranges, steps, threads, origin),
        "counters": read_counters(database, names, origin),
        "health": health_table(
            [
                *_facts(session, device, ops, ranges),
                *_warnings(session, set(pids_seen.tolist())),
                *unread_tables(database),
                *empty_tables(database),
                *_passed_over(database),
                *_nothing(host, api_calls, device_ops, database),
                *_of_tables(
                    None if api_calls is None else api_calls.table,
                    device_ops,
                    names,
                    threads.threads,
                ),
                *who(device_ops, named=any(d.name for d in described), rank=rank),
            ],
            names,
        ),
    }
    return Trace(
        source=_source(database, session, bytes_on_disk),
        threads=threads.threads,
        devices=described,
        origin_ns=None if session.started_utc_ns is None else session.started_utc_ns + origin,
        rank=rank,
        world_size=_world_size(payloads),
        names=names.freeze(),
        **tables,
    )


def _nothing(*recorded: Any) -> Iterator[Fact]:
    *held, database = recorded
    if all(each is None for each in held) and not database.has("GPU_METRICS", "value"):
        yield Fact("nothing-recorded")


def _of_tables(
    calls: Table | None, ops: Table | None, names: Names, threads: tuple[Thread, ...]
) -> Iterator[Fact]:
    """What launches, clocks and streams show."""
    yield from lost_launches(calls, ops, names)
    yield from no_calls(calls, ops)
    yield from clocks(calls, ops)
    yield from stream_order(ops)
    yield from sharing(calls, ops, threads)


def _other_calls(database: Database, strings: Mapping[int, str], names: Names) -> tuple[Calls, ...]:
    found = [
        read_os_calls(database, strings, names),
        read_samples(database, strings, names),
        *read_overhead(database, strings, names),
    ]
    return tuple(calls for calls in found if calls is not None)


def _first(*spans: Calls | Ranges | DeviceRows | None) -> int:
    return min((int(s.start.min()) for s in spans if s is not None and len(s.start)), default=0)


def _ranks(ranges: Ranges | None, payloads: Mapping[int, str]) -> dict[int, int]:
    """Rank of each process, from what NCCL said when its communicators were made.

    The largest communicator is taken to be that of the whole job.
    """
    if ranges is None or not payloads:
        return {}
    size: dict[int, int] = {}
    rank: dict[int, int] = {}
    place_of = {row: place for place, row in enumerate(ranges.row.tolist())}
    for row, text in payloads.items():
        said = _object(text)
        if (
            row in place_of
            and isinstance(said.get("ranks"), int)
            and isinstance(said.get("rank"), int)
        ):
            pid = int(pid_of(ranges.tid[place_of[row] : place_of[row] + 1])[0])
            if said["ranks"] > size.get(pid, 0):
                size[pid], rank[pid] = said["ranks"], said["rank"]
    return rank


def _world_size(payloads: Mapping[int, str]) -> int | None:
    sizes = [
        said["ranks"]
        for t in payloads.values()
        if isinstance((said := _object(t)).get("ranks"), int)
    ]
    return max(sizes, default=None)


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _devices(session: NsysSession, ops: Table | None) -> tuple[Device, ...]:
    """The devices that the file describes, and those that only their work shows."""
    described = {d.number: d for d in session.devices}
    seen = [] if ops is None else np.unique(ops["device"]).tolist()
    found = described | {n: Device(n, vendor="nvidia") for n in seen if n not in described}
    return tuple(found[n] for n in sorted(found))


def _source(database: Database, session: NsysSession, bytes_on_disk: int) -> Source:
    graph_mode = session.settings.get("CUDA_GRAPH_TRACE_OPTIONS:MODE", ())
    options = {"schema": session.schema, "graph_mode": next(iter(graph_mode), None)}
    return Source(
        str(database.path),
        "nsys",
        bytes_on_disk,
        recorder="nsys",
        recorder_version=session.version,
        producer=f"nsys {session.version}" if session.version else None,
        options={k: v for k, v in options.items() if v is not None},
    )


def _facts(
    session: NsysSession,
    device: tuple[DeviceRows, ...],
    ops: device_table.DeviceTable | None,
    ranges: Ranges | None,
) -> list[Fact]:
    dropped = sum(rows.dropped for rows in device)
    found = [("times-unsound", dropped), ("ranges-unclosed", ranges.unclosed if ranges else 0)]
    if ops is None or not len(ops.table):
        found.append(("no-device-activity", 1))
    else:
        found += [("launches-missing", ops.unlaunched), ("graphs-opaque", ops.opaque_graphs)]
    return [Fact(fact, count) for fact, count in found if count]


def _warnings(session: NsysSession, with_work: set[int]) -> Iterator[Fact]:
    """What nsys warns of, each once. Beside a process that gave the device work, it warns of every
    helper of it (a shell, a compiler, a worker) that no CUDA events came from there."""
    process = pid_of(np.array([NONE if p is None else p for p, _ in session.warnings], np.int64))
    told = [
        text
        for (named, text), pid in zip(session.warnings, process.tolist(), strict=True)
        if not with_work or named is None or pid in with_work
    ]
    told = sorted((t for t in told if not _IRRELEVANT.match(t)), key=by_weight)
    for text in dict.fromkeys(told):
        yield Fact("profiler-warning", detail=with_next_step(text))
