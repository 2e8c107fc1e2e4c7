"""Ascend's ``trace_view.json``: which lane is a device, and what launched what.

It has the form of PyTorch's traces, yet the rows of the device have no category: their process is
called *Ascend Hardware*. Rows of *CANN* are calls of the host, of *Communication* collectives of
the device; *Overlap Analysis* repeats all of it and is left out. A line *Step Trace* of the device
says when each iteration began and ended, and in which phase it was: no work. Arrows lead from
operators (``async_npu``) and calls (``HostToDevice``) to the row of the device that begins where
they end.
"""

import re
from dataclasses import replace

import numpy as np

from pinchpoint.importers.assembly.links import innermost_operator, innermost_rows, with_enclosing
from pinchpoint.importers.assembly.soundness import clocks, orphans, stream_order
from pinchpoint.importers.health import health_table
from pinchpoint.importers.kineto.reading.rare import Rare
from pinchpoint.regex import regex
from pinchpoint.trace import (
    ApiKind,
    Device,
    DeviceKind,
    FlowKind,
    Names,
    Table,
    Trace,
    empty_table,
    table,
)
from pinchpoint.trace.arrays import Array, Mask
from pinchpoint.trace.kinds import collective_verb
from pinchpoint.trace.window import only

DEVICE = "Ascend Hardware"
_CALLS, _COLLECTIVES = "CANN", ("Communication", "HCCL")
_WHOLE_LINE = "Communication Kernel"  # of whole collectives; planes beside it have their parts
_DERIVED = ("Overlap Analysis", "AI Core Freq", "NPU MEM", "Overlap")
_STEP_LINE, _STEP = "Step Trace", regex(r"Iteration (\d{1,9})$")
_GROUP = regex(r"hcom|^(all|reduce|broadcast|send|recv)", re.IGNORECASE)
# Tasks of a stream that wait for others or tell them something: no work.
NO_WORK = regex(
    r"(EVENT|NOTIFY|STREAM)_?(WAIT|RECORD)|^Notify|WAIT_VALUE|^PROFILING_(EN|DIS)ABLE",
    re.IGNORECASE,
)
_COPY = regex(r"MEMCPY|SDMA|^Memcpy", re.IGNORECASE)
_SYNC = (
    (regex(r"SynchronizeDevice|DeviceSynchronize"), ApiKind.SYNC_DEVICE),
    (regex(r"SynchronizeStream|StreamSynchronize"), ApiKind.SYNC_STREAM),
    (regex(r"SynchronizeEvent|EventSynchronize"), ApiKind.SYNC_EVENT),
    (regex(r"Memcpy", re.IGNORECASE), ApiKind.COPY),
)
_ANSWERED = ("device-unread", "cpu-only", "no-device-activity", "no-device-properties")


def as_ascend_says(trace: Trace, rare: Rare) -> Trace:
    """The trace with the lanes of the device as operations of devices."""
    if trace.host_ops is None or trace.flows is None:
        return trace
    lanes = np.array([rare.process_names.get(t.process) or "" for t in trace.threads])
    lane = lanes[trace.host_ops["thread"]]
    names = Names(trace.names)
    of_steps = _on_step_line(trace)
    on_device = _device_rows(trace, lane) & ~of_steps
    is_call = lane == _CALLS
    left = only(
        trace,
        {"host_ops": ~on_device & ~is_call & ~np.isin(lane, (*_COLLECTIVES, *_DERIVED, DEVICE))},
    )
    assert left.host_ops is not None
    calls = with_enclosing(_calls(trace, is_call, lanes, names), left.host_ops)
    ops = _operations(trace, on_device, rare, names)
    ops = _launched(trace, ops, calls, left.host_ops)
    found = Names(names.freeze())
    health = _health(trace, calls, ops, found)
    numbers = np.unique(ops["device"]).tolist()
    flows = trace.flows.take(trace.flows["kind"] == FlowKind.FORWARD_BACKWARD)
    return replace(
        left,
        devices=trace.devices or tuple(Device(n, "Ascend NPU", vendor="huawei") for n in numbers),
        api_calls=calls,
        device_ops=ops.take(np.arange(len(ops))),
        device_annotations=empty_table("device_annotations"),
        flows=flows,
        steps=_steps(trace, of_steps),
        health=health,
        names=found.freeze(),
    )


def _on_step_line(trace: Trace) -> Mask:
    rows = trace.host_ops
    assert rows is not None
    line = [(thread.label or "").startswith(_STEP_LINE) for thread in trace.threads]
    return np.array([*line, False], np.bool_)[rows["thread"]]


def _steps(trace: Trace, of_steps: Mask) -> Table | None:
    """The steps that the host marks; where it marks none, those of the device's line."""
    rows = trace.host_ops
    if rows is None or (trace.steps is not None and len(trace.steps)):
        return trace.steps
    found = [(at, _STEP.match(trace.names[rows["name"][at]])) for at in np.flatnonzero(of_steps)]
    numbered = {int(at): int(name[1]) for at, name in found if name}
    if not numbered:
        return trace.steps
    columns = ("start_ns", "duration_ns", "name", "thread")
    mine = rows.take(np.array(list(numbered)))
    number = np.array(list(numbered.values()))
    return table("steps", {c: mine[c] for c in columns} | {"number": number})


def _device_rows(trace: Trace, lane: Array) -> Mask:
    """Rows that are work of a device: tasks of its streams, and whole collectives."""
    rows = trace.host_ops
    assert rows is not None
    name = np.array(trace.names, object)[rows["name"]]
    works = np.array([not NO_WORK.search(n) for n in name], np.bool_)
    line = np.array([t.label == _WHOLE_LINE for t in trace.threads], np.bool_)[rows["thread"]]
    whole = line | np.array([bool(_GROUP.search(n)) for n in name], np.bool_)
    mask: Mask = ((lane == DEVICE) & works) | (np.isin(lane, _COLLECTIVES) & whole)
    return mask


def _calls(trace: Trace, mine: Mask, lanes: Array, names: Names) -> Table:
    """Calls that launch (an arrow begins in them), wait, or copy; on the thread of the program."""
    assert trace.host_ops is not None
    assert trace.flows is not None
    rows = trace.host_ops.take(mine)
    spelt = [trace.names[n] for n in rows["name"].tolist()]
    kind = np.array([call_kind(n) for n in spelt], np.uint8)
    arrows = trace.flows.take(lanes[trace.flows.filled("from_thread", 0)] == _CALLS)
    at = innermost_rows(rows, arrows["start_ns"], arrows["from_thread"].astype(np.int64))
    launches = np.zeros(len(rows), np.bool_)
    launches[at[at >= 0]] = True
    kind[launches & (kind == ApiKind.OTHER)] = ApiKind.LAUNCH
    known = np.flatnonzero(kind != ApiKind.OTHER)
    # CANN's calls call each other: the innermost of those that do something does it.
    keep = known[launches[known] | _leaves(rows.take(known))]
    home = {
        t.thread: at
        for at, t in reversed(list(enumerate(trace.threads)))
        if lanes[at] not in (_CALLS, DEVICE)
    }
    thread = [home.get(trace.threads[t].thread, t) for t in rows["thread"][keep].tolist()]
    bare = [spelt[row].rpartition("@")[2] for row in keep.tolist()]
    if not len(keep):
        return empty_table("api_calls")
    return table(
        "api_calls",
        {
            "start_ns": rows["start_ns"][keep],
            "duration_ns": rows["duration_ns"][keep],
            "name": np.array(names.ids_of(bare)),
            "kind": kind[keep],
            "thread": np.array(thread),
            "event": rows["event"][keep],
        },
    )


def call_kind(name: str) -> ApiKind:
    """What a call of CANN waits for or copies; OTHER of all others, launches among them."""
    return next((kind for pattern, kind in _SYNC if pattern.search(name)), ApiKind.OTHER)


def _leaves(rows: Table) -> Mask:
    """Rows that enclose no other row of their thread."""
    leaf = np.ones(len(rows), np.bool_)
    order = np.lexsort((-rows["duration_ns"], rows["start_ns"], rows["thread"]))
    following = order[1:]
    encloses = (rows["thread"][order[:-1]] == rows["thread"][following]) & (
        rows.end_ns[order[:-1]] >= rows.end_ns[following]
    )
    leaf[order[:-1][encloses]] = False
    return leaf


def _operations(trace: Trace, mine: Mask, rare: Rare, names: Names) -> Table:
    assert trace.host_ops is not None
    rows = trace.host_ops.take(mine)
    if not len(rows):
        return empty_table("device_ops")
    spelt = [trace.names[n] for n in rows["name"].tolist()]
    threads = [trace.threads[t] for t in rows["thread"].tolist()]
    number = _numbers({t.process for t in threads}, rare)
    of_group = [rare.process_names.get(t.process) in _COLLECTIVES for t in threads]
    kinds = [
        DeviceKind.COLLECTIVE if group else work_kind(name)
        for name, group in zip(spelt, of_group, strict=True)
    ]
    verbs = [
        collective_verb(n) if k == DeviceKind.COLLECTIVE else None
        for n, k in zip(spelt, kinds, strict=True)
    ]
    stream = [
        int(t.thread) if t.thread.isdecimal() and len(t.thread) < 10 else None for t in threads
    ]
    return table(
        "device_ops",
        {
            "start_ns": rows["start_ns"],
            "duration_ns": rows["duration_ns"],
            "name": rows["name"],
            "kind": np.array(kinds, np.uint8),
            "device": np.array([number[t.process] for t in threads]),
            "stream": np.array([s or 0 for s in stream]),
            "collective": np.array([0 if v is None else names.id_of(v) for v in verbs]),
            "event": rows["event"],
            "correlation": rows["thread"].astype(np.int64),  # replaced when links are known
        },
        {
            "stream": np.array([s is None for s in stream]),
            "collective": np.array([v is None for v in verbs]),
        },
    )


def _numbers(used: set[str], rare: Rare) -> dict[str, int]:
    """The device of each process that has rows of one: streams and collectives are processes of
    their own, and of one device where the file has the streams of one."""
    streams = sorted(
        (p for p in used if rare.process_names.get(p) == DEVICE), key=lambda p: (len(p), p)
    )
    if len(streams) < 2:
        return dict.fromkeys(used, 0)
    unit = {_unit(process): at for at, process in enumerate(streams)}
    return {p: at for at, p in enumerate(streams)} | {
        p: unit.get(_unit(p), 0) for p in used - set(streams)
    }


def _unit(process: str) -> int:
    """Of a device: msprof numbers its processes host process * 1024 + layer * 32 + device
    (``TraceViewHeaderFormat`` of msprof's viewer)."""
    return int(process) % 32 if process.isdecimal() else -1


def work_kind(name: str) -> DeviceKind:
    """What a device does in a row of this name."""
    if _GROUP.search(name) and not _COPY.search(name):
        return DeviceKind.COLLECTIVE
    return DeviceKind.COPY if _COPY.search(name) else DeviceKind.KERNEL


def _launched(trace: Trace, ops: Table, calls: Table, host: Table) -> Table:
    """The operations with the call and the operator that the arrows to them come from."""
    flows = trace.flows
    if not len(ops) or flows is None:
        return ops
    arrows = flows.take(flows.known("from_thread") & flows.known("to_thread"))
    order = np.lexsort((arrows["end_ns"], arrows["to_thread"]))
    call, operator = np.full(len(ops), -1, np.int64), np.full(len(ops), -1, np.int64)
    thread = ops["correlation"]
    ends = list(
        zip(arrows["to_thread"][order].tolist(), arrows["end_ns"][order].tolist(), strict=True)
    )
    by_end: dict[tuple[int, int], list[int]] = {}
    for at, key in zip(order.tolist(), ends, strict=True):
        by_end.setdefault(key, []).append(at)
    call_at = innermost_rows(calls, arrows["start_ns"], _home(trace, arrows["from_thread"]))
    host_at = innermost_rows(host, arrows["start_ns"], arrows["from_thread"].astype(np.int64))
    for row, key in enumerate(zip(thread.tolist(), ops["start_ns"].tolist(), strict=True)):
        for at in by_end.get(key, ()):
            call[row] = max(call[row], call_at[at])
            operator[row] = max(operator[row], host_at[at])
    from_call = (
        np.where(call >= 0, calls.filled("host_op", -1)[np.maximum(call, 0)], -1)
        if len(calls)
        else call
    )
    operator = innermost_operator(np.where(operator >= 0, operator, from_call), host)
    columns = {**ops.columns, "api_call": np.maximum(call, 0), "host_op": np.maximum(operator, 0)}
    columns["correlation"] = np.maximum(call, 0) + 1
    missing = {
        **ops.missing,
        "api_call": call < 0,
        "host_op": operator < 0,
        "correlation": call < 0,
    }
    return table("device_ops", columns, missing)


def _home(trace: Trace, threads: Array) -> Array:
    """The thread of the program that has the number of a thread of CANN."""
    first: dict[str, int] = {}
    for at, thread in enumerate(trace.threads):
        first.setdefault(thread.thread, at)
    return np.array([first[trace.threads[t].thread] for t in threads.tolist()], np.int64)


def _health(trace: Trace, calls: Table, ops: Table, names: Names) -> Table:
    """What was said of the file, without what is answered now."""
    old = trace.health
    fresh = health_table([*orphans(ops), *clocks(calls, ops), *stream_order(ops)], names)
    if old is None or not len(old):
        return fresh
    answered = _ANSWERED if len(ops) else ()
    kept = np.array([trace.names[n] not in answered for n in old["fact"].tolist()], np.bool_)
    left = old.take(kept)
    columns = {c: np.concatenate((left[c], fresh[c])) for c in left.columns}
    unknown = np.concatenate((~left.known("time_ns"), ~fresh.known("time_ns")))
    return table("health", columns, {"time_ns": unknown})
