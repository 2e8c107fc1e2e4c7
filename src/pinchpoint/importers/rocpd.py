"""Databases of rocprofv3 7 (rocpd), and what rocprof 1 wrote: a database, and events as JSON.

Times are nanoseconds of the host's clock. In rocpd each table's name ends in the number of the run
that filled it, and several runs may lie in one file; a call and what it started share the
``stack_id`` of their events. The views that lie beside the tables leave rows out, so they are not
asked. A kernel's grid counts work-items, not blocks. rocprof 1 wrote a SQLite database and Chrome
trace events, whose arguments hold the same columns; there devices are processes of their own.
With kernels alone (``rocprof --stats``) it wrote them to a table and to CSV.
Source: rocpd_tables.sql of rocprofiler-sdk (versions 3), and tblextr.py of rocprofiler.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.assembly.timeline import Timeline
from pinchpoint.importers.files.database import Database, opened, tables_in
from pinchpoint.importers.files.memory import ROCPROF_JSON_TIMES, TABLE_TIMES, must_fit
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.health import Fact
from pinchpoint.importers.rocprofv3 import copy_named, table_rows, triple
from pinchpoint.regex import regex
from pinchpoint.trace import Device, DeviceKind, HostKind, Source, Trace

FORMAT = "rocpd"
FILES = ("results.db results.json results.csv", "rocprofv3 (ROCm 7: .db), rocprof (all)")
READS: tuple[str, ...] = ("host", "calls", "device", "steps")
NOT_READ = "counters, samples, allocations; schema 4"

_SQLITE = b"SQLite format 3\x00"
_KERNELS = "rocpd_kernel_dispatch"
_OPS, _COPIES, _CALLS = "OPS", "COPY", ("HIP", "HSA")  # of rocprof 1
_OLD = ("BeginNs", "EndNs", "Name", "Index")
_LAUNCHES = ("pid", "tid")
_ALONE = "KERN"  # kernels of rocprof 1 with neither calls nor copies
_OF_KERNELS = (
    *("BeginNs", "EndNs", "KernelName", "gpu-id", "queue-id", "grd", "wgr"),
    *("lds", "arch_vgpr"),
)
_AXES = "xyz"
# rocprof 1 begins its list of events with an empty one, and orders its processes.
_OLD_JSON = regex(rb'^\{ ?"traceEvents":\[\{\}\s*,\{"args":\{"name":"[^"]{1,40}"\},"ph":"M"')
_COPYING, _RUNTIMES = 1, (2, 3)  # processes in it; markers are 0


def claims(path: Path, head: bytes) -> bool:
    """Such tables or events; a database inside an archive is known when it is unpacked."""
    if _OLD_JSON.match(head) or _is_csv(head):
        return True
    return head.startswith(_SQLITE) and holds(tables_in(path))


def holds(tables: Collection[str]) -> bool:
    """Whether a database with these tables is one of AMD's."""
    old = {_OPS, "HIP"} <= set(tables) or _ALONE in tables
    return old or any(t.startswith(_KERNELS) for t in tables)


def _is_csv(head: bytes) -> bool:
    first = head.partition(b"\n")[0].replace(b'"', b"")
    return first.startswith(b"Index,KernelName,") and b",BeginNs,EndNs" in first


def read(path: Path) -> Trace:
    """The trace of all runs in the file; UnreadableFile for a damaged one, or an unknown schema."""
    with unpacked(path) as plain:
        with plain.open("rb") as file:
            first = file.read(1)
        if first == b"{":
            return _of_events(path, plain)
        if first != _SQLITE[:1]:
            return _of_csv(path, plain)
        with opened(plain, path) as database:
            return build(database, path)


def build(database: Database, path: Path) -> Trace:
    """The trace of an opened database."""
    timeline, devices = Timeline(), dict[int, Device]()
    unread: list[str] = []
    for run in _runs(database):
        held = _Run(database, run)
        held.into(timeline, devices)
        unread += held.unread
    for number, table in enumerate((_OPS, _COPIES)):
        _old_operations(timeline, devices, database, table, copies=number == 1)
    if database.has(_ALONE, *_OF_KERNELS[:4]):
        held_columns = [c for c in _OF_KERNELS if database.has(_ALONE, c)]
        for values in database.rows(_ALONE, held_columns):
            _old_kernel(timeline, devices, dict(zip(held_columns, values, strict=True)))
    for table in _CALLS:
        called = _with_times(timeline, database.rows(table, (*_LAUNCHES, *_OLD)), len(_LAUNCHES))
        for pid, tid, *row in called:
            start, end, name, index = row
            timeline.call(str(name), start, end - start, timeline.thread(pid, tid), index)
    detail = f"tables that are not there, or lack columns: {', '.join(unread)}"
    facts = [Fact("tables-unread", len(unread), detail)] if unread else []
    return _finished(path, timeline, devices, facts)


def _finished(
    path: Path, timeline: Timeline, devices: dict[int, Device], facts: Iterable[Fact] = ()
) -> Trace:
    if not (timeline.host or timeline.calls or timeline.operations):
        raise UnreadableFile(
            f"{path}: nothing that AMD's profiler recorded can be read: it is empty, or of a schema"
            " that is not known here",
            hint="record it again with rocprofv3 --runtime-trace --kernel-trace"
            " --output-format json, or convert it: rocpd convert -i FILE --output-format pftrace",
        )
    used = set(timeline.operations.columns.get("device", ()))
    source = Source(str(path), FORMAT, path.stat().st_size, recorder="rocprofv3")
    return timeline.trace(source, [devices[n] for n in sorted(used & set(devices))], facts)


def _runs(database: Database) -> list[str]:
    """What the names of the tables of one run end in."""
    return [t.removeprefix(_KERNELS) for t in database.columns if t.startswith(_KERNELS)]


class _Run:
    """Rows of one run, with what they point to."""

    def __init__(self, database: Database, ending: str) -> None:
        self._database, self._ending = database, ending
        self.unread: list[str] = []  # tables that hold nothing that can be read
        self._strings = dict(self._rows("string", "id", "string"))
        self._threads = {
            i: (pid, tid) for i, pid, tid in self._rows("info_thread", "id", "pid", "tid")
        }
        self._kernels = {
            i: shown or name
            for i, name, shown in self._rows(
                "info_kernel_symbol", "id", "kernel_name", "display_name"
            )
        }
        self._event = {
            i: (category, stack)
            for i, category, stack in self._rows("event", "id", "category_id", "stack_id")
        }

    def _rows(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        name = f"rocpd_{table}{self._ending}"
        if not self._database.has(name, *columns):
            self.unread.append(name)
        return self._database.rows(name, columns)

    def _timed(
        self, timeline: Timeline, table: str, columns: tuple[str, ...], *, start_at: int
    ) -> Iterator[tuple[Any, ...]]:
        """Rows with a start and, right behind it, an end; a row that was never ended is counted."""
        yield from _with_times(timeline, self._rows(table, *columns), start_at)

    def into(self, timeline: Timeline, devices: dict[int, Device]) -> None:
        """Everything that the run recorded."""
        agents: dict[int, int] = {}
        kinds = ("id", "type", "type_index", "product_name", "name")
        for i, kind, index, product, name in self._rows("info_agent", *kinds):
            if kind == "GPU":
                agents[i] = index
                devices[index] = Device(number=index, name=product or name, vendor="amd")
        self._dispatches(timeline, agents)
        self._copies(timeline, agents)
        for pid, tid, start, end, name, event in self._timed(
            timeline, "region", (*_LAUNCHES, "start", "end", "name_id", "event_id"), start_at=2
        ):
            category, stack = self._event.get(event, (None, None))
            thread = timeline.thread(*self._threads.get(tid, (pid, tid)))
            text, lasts = self._strings.get(name) or "(unnamed)", end - start
            if "MARKER" in str(self._strings.get(category)).upper():
                timeline.on_host(text, start, lasts, thread, HostKind.ANNOTATION)
            else:
                timeline.call(text, start, lasts, thread, stack)

    def _dispatches(self, timeline: Timeline, agents: dict[int, int]) -> None:
        sizes = [f"{what}_size_{a}" for what in ("workgroup", "grid") for a in _AXES]
        columns = ("agent_id", "kernel_id", "stream_id", "start", "end", "event_id", *sizes)
        for agent, kernel, stream, start, end, event, *size in self._timed(
            timeline, "kernel_dispatch", columns, start_at=3
        ):
            block, items = size[:3], size[3:]
            known = self._kernels.get(kernel)
            timeline.unnamed += not known
            timeline.on_device(
                str(known or f"kernel {kernel}").removesuffix(".kd"),
                start,
                end - start,
                device=agents.get(agent, 0),
                stream=stream,
                correlation=self._event.get(event, (None, None))[1],
                grid=triple([-(-i // max(b, 1)) for i, b in zip(items, block, strict=True)]),
                block=triple(block),
            )

    def _copies(self, timeline: Timeline, agents: dict[int, int]) -> None:
        agents_of = ("dst_agent_id", "src_agent_id")
        columns = ("name_id", "start", "end", *agents_of, "size", "stream_id", "event_id")
        for name, start, end, to, of, size, stream, event in self._timed(
            timeline, "memory_copy", columns, start_at=1
        ):
            named, source, target = copy_named(self._strings.get(name) or "")
            timeline.on_device(
                named,
                start,
                end - start,
                device=next((agents[a] for a in (to, of) if a in agents), 0),
                kind=DeviceKind.COPY,
                stream=stream,
                correlation=self._event.get(event, (None, None))[1],
                bytes=size,
                from_memory=source,
                to_memory=target,
            )


def _with_times(
    timeline: Timeline, rows: Iterable[tuple[Any, ...]], start_at: int
) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        if row[start_at] is None or row[start_at + 1] is None:
            timeline.unusable += 1
        else:
            yield row


def _old_operations(
    timeline: Timeline, devices: dict[int, Device], database: Database, table: str, *, copies: bool
) -> None:
    """Rows of rocprof 1; a call and what it started have one ``Index``."""
    rows = database.rows(table, ("dev-id", "stream-id", *_OLD))
    for device, stream, start, end, name, index in _with_times(timeline, rows, 2):
        devices.setdefault(device, Device(number=device, vendor="amd"))
        more: dict[str, Any] = {"stream": stream, "correlation": index}
        if copies:
            name, source, target = copy_named(str(name))
            more |= {"kind": DeviceKind.COPY, "from_memory": source, "to_memory": target}
        timeline.on_device(str(name), start, end - start, device=device, **more)


def _old_kernel(timeline: Timeline, devices: dict[int, Device], row: dict[str, Any]) -> None:
    """A kernel of rocprof 1, from a table or CSV; a grid counts work-items."""
    number = {name: _whole(value) for name, value in row.items()}
    start, end, device = (number.get(name) for name in ("BeginNs", "EndNs", "gpu-id"))
    if start is None or end is None or device is None:
        timeline.unusable += 1
        return
    devices.setdefault(device, Device(number=device, vendor="amd"))
    items, block = number.get("grd"), number.get("wgr")
    timeline.on_device(
        str(row.get("KernelName") or "(unnamed)").strip('"').removesuffix(".kd"),
        start,
        end - start,
        device=device,
        stream=number.get("queue-id"),
        grid=triple([-(-items // block), 1, 1]) if items and block else None,
        block=triple([block, 1, 1]) if block else None,
        registers=number.get("arch_vgpr"),
        shared_bytes=number.get("lds"),
    )


def _whole(value: Any) -> int | None:
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isdigit() and len(value) < 19 else None


def _of_csv(path: Path, plain: Path) -> Trace:
    must_fit(path, plain.stat().st_size, TABLE_TIMES)
    timeline, devices = Timeline(), dict[int, Device]()
    for row in table_rows(path, plain, timeline):
        _old_kernel(timeline, devices, row)
    return _finished(path, timeline, devices)


# ------------------------------------------------------------------------------------------------
# Chrome trace events of rocprof 1.


def _of_events(path: Path, plain: Path) -> Trace:
    must_fit(path, plain.stat().st_size, ROCPROF_JSON_TIMES)
    try:
        events = msgspec.json.decode(plain.read_bytes())["traceEvents"]
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError) as error:
        raise UnreadableFile(
            f"{path}: cut off or broken JSON ({error})", hint="copy it again, or record it again"
        ) from None
    timeline, devices = Timeline(), dict[int, Device]()
    started = {_place(e): e.get("id") for e in events if e.get("ph") == "t"}
    asked = _Asked(e for e in events if e.get("ph") == "s")
    for event in events:
        if event.get("ph") == "X":
            _event(timeline, devices, event, started, asked)
    return _finished(path, timeline, devices)


def _place(event: dict[str, Any]) -> tuple[int | None, Any, int]:
    """Process, thread and µs; some versions write all of them as text."""
    return _whole(event.get("pid")), str(event.get("tid")), int(event.get("ts", 0))


def _event(
    timeline: Timeline,
    devices: dict[int, Device],
    event: dict[str, Any],
    started: dict[tuple[int | None, Any, int], Any],
    asked: "_Asked",
) -> None:
    facts = event.get("args") or {}
    name, process = str(event.get("name")), _place(event)[0]
    try:
        start, end = int(facts["BeginNs"]), int(facts["EndNs"])
    except (KeyError, ValueError, TypeError):
        timeline.unusable += 1
        return
    if "dev-id" not in facts:
        thread = timeline.thread(facts.get("pid"), facts.get("tid"))
        if process in _RUNTIMES:
            timeline.call(name, start, end - start, thread, asked.within(event, start, end))
        else:
            timeline.on_host(name, start, end - start, thread, HostKind.ANNOTATION)
        return
    device = int(facts["dev-id"])
    devices.setdefault(device, Device(number=device, vendor="amd"))
    more: dict[str, Any] = {"stream": int(facts.get("stream-id") or 0)}
    more["correlation"] = started.get(_place(event))
    if process == _COPYING:
        name, source, target = copy_named(name)
        more |= {"kind": DeviceKind.COPY, "from_memory": source, "to_memory": target}
    timeline.on_device(name, start, end - start, device=device, **more)


class _Asked:
    """Beginnings of flows, by the thread of the call that they begin in."""

    def __init__(self, flows: Iterable[dict[str, Any]]) -> None:
        self._by_thread: dict[tuple[int | None, Any], list[tuple[int, Any]]] = {}
        for flow in flows:
            process, thread, at_us = _place(flow)
            self._by_thread.setdefault((process, thread), []).append((at_us, flow.get("id")))
        for each in self._by_thread.values():
            each.sort(key=lambda flow: flow[0])

    def within(self, call: dict[str, Any], start: int, end: int) -> Any:
        """The flow that begins while a call runs; None of a call that starts nothing."""
        mine = self._by_thread.get(_place(call)[:2], [])
        at = bisect_left(mine, start // 1000, key=lambda flow: flow[0])
        return mine[at][1] if at < len(mine) and mine[at][0] <= end // 1000 else None
