"""Tables from rows that a reader meets in any order: sorted, nested and linked at the end."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.importers._links import innermost_operator, launching_calls, with_enclosing
from pinchpoint.importers._soundness import (
    clocks,
    lost_launches,
    no_calls,
    orphans,
    sharing,
    stream_order,
    who,
)
from pinchpoint.importers.health import Fact, health_table
from pinchpoint.trace import (
    TABLES,
    Device,
    DeviceKind,
    HostKind,
    Names,
    Source,
    Table,
    Thread,
    Trace,
    empty_table,
    table,
)
from pinchpoint.trace.intervals import NO_ROW, nest, nesting_order
from pinchpoint.trace.kinds import api_kind, collective_kind, without_version

_STEP = re.compile(r"^(?:ProfilerStep#|train_step_?#?|step[_ #]?)(\d{1,9})$", re.IGNORECASE)
_MOST = 1 << 61  # nanoseconds; no clock counts further
Row = dict[str, Any]


@dataclass
class Timeline:
    """Rows of the host, of calls and of devices; times in ns of one clock, whatever its zero."""

    names: Names = field(default_factory=Names)
    threads: dict[tuple[str, str], int] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)  # of threads
    host: list[Row] = field(default_factory=list)
    calls: list[Row] = field(default_factory=list)
    operations: list[Row] = field(default_factory=list)
    unusable: int = 0  # rows without times that make sense

    def thread(self, process: object, thread: object, label: str | None = None) -> int:
        """The position of a host thread."""
        at = self.threads.setdefault((str(process), str(thread)), len(self.threads))
        if label:
            self.labels[at] = label
        return at

    def on_host(
        self, name: str, start: int, lasts: int, thread: int, kind: HostKind, **more: Any
    ) -> None:
        """What the host ran: an operator, an annotation, a function."""
        self._add(self.host, start, lasts, name=name, thread=thread, kind=int(kind), **more)

    def call(
        self, name: str, start: int, lasts: int, thread: int, correlation: int | None, **more: Any
    ) -> None:
        """A call of the host into the device's runtime."""
        bare = without_version(name)
        kind = int(more.pop("kind", api_kind(bare)))
        self._add(
            self.calls,
            start,
            lasts,
            name=bare,
            thread=thread,
            kind=kind,
            correlation=correlation,
            **more,
        )

    def on_device(
        self,
        name: str,
        start: int,
        lasts: int,
        device: int,
        kind: DeviceKind | None = None,
        **more: Any,
    ) -> None:
        """What a device ran; of a kernel the name says whether it is a collective."""
        collective = collective_kind(name) if kind in (None, DeviceKind.COLLECTIVE) else None
        if kind is None:
            kind = DeviceKind.COLLECTIVE if collective else DeviceKind.KERNEL
        if kind == DeviceKind.COLLECTIVE:
            more.setdefault("collective", collective or "other")
        self._add(self.operations, start, lasts, name=name, device=device, kind=int(kind), **more)

    def _add(self, rows: list[Row], start: int, lasts: int, **more: Any) -> None:
        if not (0 <= start < _MOST and 0 <= lasts < _MOST):
            self.unusable += 1
            return
        rows.append({"start_ns": start, "duration_ns": lasts, **more})

    def trace(
        self,
        source: Source,
        devices: Sequence[Device] = (),
        facts: Iterable[Fact] = (),
        **more: Any,
    ) -> Trace:
        """The trace; times count from its first event."""
        zero = min((r["start_ns"] for r in (*self.host, *self.calls, *self.operations)), default=0)
        host = _nested(self._table("host_ops", self.host, zero))
        calls = with_enclosing(self._table("api_calls", self.calls, zero), host)
        ops = _linked(self._table("device_ops", self.operations, zero), calls, host)
        threads = tuple(
            Thread(process, thread, self.labels.get(at))
            for (process, thread), at in self.threads.items()
        )
        found = [*facts, *self._health(calls, ops, threads, named=any(d.name for d in devices))]
        return Trace(
            source=source,
            threads=threads,
            devices=tuple(devices),
            host_ops=host,
            api_calls=calls,
            device_ops=ops,
            steps=self._steps(host),
            health=health_table(found, self.names),
            names=self.names.freeze(),
            **more,
        )

    def _health(
        self, calls: Table, ops: Table, threads: Sequence[Thread], *, named: bool
    ) -> Iterable[Fact]:
        if self.unusable:
            yield Fact("times-unsound", self.unusable)
        if not len(ops):
            yield Fact("no-device-activity")
            return
        yield from who(ops, named=named, rank=None)
        yield from no_calls(calls, ops)
        yield from stream_order(ops)
        if len(calls):
            yield from orphans(ops)
            yield from clocks(calls, ops)
            yield from sharing(calls, ops, threads)
            yield from lost_launches(calls, ops, self.names)

    def _table(self, name: str, rows: list[Row], zero: int) -> Table:
        if not rows:
            return empty_table(name)
        rows.sort(key=lambda r: (r["start_ns"], -r["duration_ns"]))
        columns: dict[str, Any] = {}
        missing: dict[str, Any] = {}
        for column in sorted({key for row in rows for key in row}):
            values = [row.get(column) for row in rows]
            if TABLES[name][column].refers_to == "names":
                values = [None if v is None else self.names.id_of(v) for v in values]
            columns[column] = np.array([0 if v is None else v for v in values])
            if TABLES[name][column].nullable:
                missing[column] = np.array([v is None for v in values])
        columns["start_ns"] = columns["start_ns"].astype(np.int64) - zero
        return table(name, columns, missing)

    def _steps(self, host: Table) -> Table:
        rows, numbers = [], []
        frozen = self.names.freeze()
        for row in np.flatnonzero(host["kind"] == HostKind.ANNOTATION).tolist():
            if marker := _STEP.match(frozen[int(host["name"][row])]):
                rows.append(row)
                numbers.append(int(marker[1]))
        if len(rows) < 2:
            return empty_table("steps")
        columns = {c: host[c][rows] for c in ("start_ns", "duration_ns", "name", "thread")}
        return table("steps", {**columns, "number": np.array(numbers)})


def _nested(host: Table) -> Table:
    if not len(host):
        return host
    group, start, end = host["thread"].astype(np.int64), host["start_ns"], host.end_ns
    order = nesting_order(group, start, end)
    found = nest(group[order], start[order], end[order]).parent
    parent = np.full(len(host), NO_ROW, np.int64)
    parent[order] = np.where(found == NO_ROW, NO_ROW, order[found])
    return table(
        "host_ops",
        {**host.columns, "parent": np.maximum(parent, 0)},
        {**host.missing, "parent": parent == NO_ROW},
    )


def _linked(ops: Table, calls: Table, host: Table) -> Table:
    if not len(ops):
        return ops
    call = launching_calls(ops.filled("correlation", 0), ops["start_ns"], calls)
    operator = np.full(len(ops), -1, np.int32)
    launched = call >= 0
    if len(calls):
        operator[launched] = calls.filled("host_op", -1)[call[launched]]
    operator = innermost_operator(operator, host)
    return table(
        "device_ops",
        {**ops.columns, "api_call": np.maximum(call, 0), "host_op": np.maximum(operator, 0)},
        {**ops.missing, "api_call": call < 0, "host_op": operator < 0},
    )
