"""Ascend's databases: ``ascend_pytorch_profiler_*.db`` of torch_npu, and msprof's ``msprof_*.db``.

Times are nanoseconds since 1970; names are numbers of ``STRING_IDS``. A task of a device and the
call of CANN that started it share a ``connectionId``; operators of PyTorch have a number of their
own, for which ``CONNECTION_IDS`` lists those of what they started. Tasks that are parts of a
collective are left out: ``COMMUNICATION_OP`` has it as a whole.
Source: the tables themselves (schema 1.0), and the databases that MindStudio Insight is tested on.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.assembly.timeline import Timeline
from pinchpoint.importers.files.database import Database, opened, tables_in
from pinchpoint.importers.kineto.ascend import NO_WORK, call_kind, work_kind
from pinchpoint.importers.kineto.host import host_kind
from pinchpoint.trace import ApiKind, Device, DeviceKind, Source, Table, Trace, table

FORMAT = "Ascend database"
FILES = ("ascend_pytorch_profiler_*.db msprof_*.db", "torch_npu.profiler (Db), msprof")
READS: tuple[str, ...] = ("host", "calls", "device", "steps")
NOT_READ = "memory, bandwidths, shapes, hardware counters"

_SQLITE = b"SQLite format 3\x00"
_SIGNS = {"STRING_IDS", "TASK"}
_OP, _PYTHON = 50001, 50003  # of ENUM_API_TYPE; the queue of tasks is 50002
_MARKER = "ProfilerStep#"
_PROCESS_BITS = 32  # of a globalTid above those of the thread


def claims(path: Path, head: bytes) -> bool:
    """A SQLite database with Ascend's tables."""
    return head.startswith(_SQLITE) and holds(tables_in(path))


def holds(tables: Collection[str]) -> bool:
    """Whether a database with these tables is one of Ascend's."""
    return set(tables) >= _SIGNS


def read(path: Path) -> Trace:
    """The trace; UnreadableFile of a damaged file, or one without anything that ran."""
    with opened(path, path) as database:
        return build(database, path)


def build(database: Database, path: Path) -> Trace:
    """The trace of an opened database."""
    return _Reading(database).trace(path)


class _Call(NamedTuple):
    thread: int
    start: int
    end: int
    name: str
    connection: int | None
    kind: ApiKind


class _Reading:
    """One database on its way to a trace."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._strings = dict(database.rows("STRING_IDS", ("id", "value")))
        self._timeline = Timeline()
        self._devices = dict(database.rows("NPU_INFO", ("id", "name")))
        self._steps_on = 0  # the thread that has the markers of the steps

    def trace(self, path: Path) -> Trace:
        """Host, calls, tasks and collectives, linked."""
        started = self._tasks()
        self._calls(started)
        operator_of = self._operators()
        if not (self._timeline.host or self._timeline.calls or self._timeline.operations):
            raise UnreadableFile(
                f"{path}: a database of Ascend's profiler without anything that ran",
                hint="record again with the NPU among the activities, and let the steps end",
            )
        return self._linked(path, operator_of)

    def _name(self, number: Any) -> str:
        return str(self._strings.get(number, number))

    def _thread(self, number: int) -> int:
        return self._timeline.thread(number >> _PROCESS_BITS, number & ((1 << _PROCESS_BITS) - 1))

    def _tasks(self) -> set[int]:
        """What devices ran; the connections that started it."""
        read, add = self._database.rows, self._timeline.on_device
        names = dict(read("COMPUTE_TASK_INFO", ("globalTaskId", "name")))
        parts = {i for (i,) in read("COMMUNICATION_TASK_INFO", ("globalTaskId",))}
        whole = list(read("COMMUNICATION_OP", ("opName", "startNs", "endNs", "connectionId")))
        collective = {connection for *_, connection in whole}
        device_of, started = dict[int, int](), set(collective)
        columns = ("startNs", "endNs", "deviceId", "streamId", "connectionId", "taskType")
        for task, start, end, device, stream, connection, kind in read(
            "TASK", ("globalTaskId", *columns)
        ):
            name = self._name(names.get(task, kind))
            device_of[connection] = device
            # Of no operator: parts of a collective, and what starts, marks or waits for others.
            aside = task in parts or connection in collective or NO_WORK.search(name)
            if task in names or not aside:
                more = {"stream": stream, "correlation": connection}
                add(name, start, end - start, device, work_kind(name), **more)
                started.add(connection)
        only = next(iter(self._devices), 0)
        for name, start, end, connection in whole:
            device, more = device_of.get(connection, only), {"correlation": connection}
            add(self._name(name), start, end - start, device, DeviceKind.COLLECTIVE, **more)
        return started

    def _calls(self, started: set[int]) -> None:
        columns = ("globalTid", "startNs", "endNs", "name", "connectionId")
        known = []
        for thread, start, end, name, connection in self._database.rows("CANN_API", columns):
            kind = call_kind(self._name(name))
            if kind == ApiKind.OTHER and connection in started:
                kind = ApiKind.LAUNCH
            if kind != ApiKind.OTHER:
                named = self._name(name).rpartition("@")[2]
                known.append(_Call(thread, start, end, named, connection, kind))
        for call in _innermost(known, started):
            self._timeline.call(
                call.name,
                call.start,
                call.end - call.start,
                self._thread(call.thread),
                call.connection,
                kind=call.kind,
            )

    def _operators(self) -> dict[int, int]:
        """What PyTorch ran on the host; of each connection the number of the operator."""
        columns = ("startNs", "endNs", "globalTid", "name", "type", "connectionId")
        operators = set[int]()
        for start, end, thread, name, kind, connection, *more in self._database.rows(
            "PYTORCH_API", (*columns, "sequenceNumber")
        ):
            text = self._name(name)
            if text.startswith(_MARKER):
                self._steps_on = self._thread(thread)
            category = {_OP: "cpu_op", _PYTHON: "python_function"}.get(kind, "")
            sequence = more[0] if more[0] is not None and more[0] >= 0 else None
            own = connection if kind == _OP else None
            if own is not None:
                operators.add(own)
            begin = int(start)  # as text in this table
            self._timeline.on_host(
                text,
                begin,
                int(end) - begin,
                self._thread(thread),
                host_kind(category, text),
                external_id=own,
                sequence=sequence,
            )
        pairs = self._database.rows("CONNECTION_IDS", ("id", "connectionId"))
        return {connection: number for number, connection in pairs if number in operators}

    def _linked(self, path: Path, operator_of: dict[int, int]) -> Trace:
        """The trace, with the operator that each task comes from, and its steps."""
        marked = list(self._database.rows("STEP_TIME", ("id", "startNs", "endNs")))
        names = [self._timeline.names.id_of(f"{_MARKER}{number}") for number, *_ in marked]
        rows = (self._timeline.host, self._timeline.calls, self._timeline.operations)
        zero = min(min(r.columns["start_ns"]) for r in rows if len(r))
        used = set(self._timeline.operations.columns.get("device", ()))
        devices = [
            Device(n, str(self._devices.get(n) or "Ascend NPU"), vendor="huawei")
            for n in sorted(used)
        ]
        source = Source(str(path), FORMAT, path.stat().st_size, recorder="torch_npu.profiler")
        trace = self._timeline.trace(source, devices)
        assert trace.device_ops is not None
        assert trace.host_ops is not None
        trace = replace(
            trace, device_ops=_from_operators(trace.device_ops, trace.host_ops, operator_of)
        )
        if not marked or (trace.steps is not None and len(trace.steps)):
            return trace
        columns = {
            "start_ns": np.array([start - zero for _, start, _ in marked]),
            "duration_ns": np.array([end - start for _, start, end in marked]),
            "number": np.array([number for number, *_ in marked]),
            "name": np.array(names),
            "thread": np.full(len(marked), self._steps_on),
        }
        return replace(trace, steps=table("steps", columns))


def _innermost(calls: list[_Call], started: set[int]) -> Iterator[_Call]:
    """CANN's calls call each other: those that started something, and the innermost of others."""
    calls.sort(key=lambda c: (c.thread, c.start, -c.end))
    for call, after in zip(calls, [*calls[1:], None], strict=True):
        holds = after is not None and after.thread == call.thread and after.end <= call.end
        if call.connection in started or not holds:
            yield call


def _from_operators(ops: Table, host: Table, operator_of: dict[int, int]) -> Table:
    """The operations with the operator of the program, where the file says it."""
    known = host.known("external_id") if len(host) else np.zeros(0, np.bool_)
    row_of = {int(host["external_id"][row]): row for row in np.flatnonzero(known).tolist()}
    row = np.array(
        [row_of.get(operator_of.get(c, -1), -1) for c in ops.filled("correlation", -1).tolist()],
        np.int64,
    )
    if not len(row):
        return ops
    row = np.where(row < 0, ops.filled("host_op", -1), row)
    columns = {**ops.columns, "host_op": np.maximum(row, 0)}
    return table("device_ops", columns, {**ops.missing, "host_op": row < 0})


__all__ = ["FILES", "FORMAT", "NOT_READ", "READS", "build", "claims", "holds", "read"]
