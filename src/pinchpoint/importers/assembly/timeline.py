"""Tables from rows that a reader meets in any order: sorted, nested and linked at the end."""

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import compress
from typing import Any

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.importers.assembly.links import innermost_operator, launching_calls, with_enclosing
from pinchpoint.importers.assembly.soundness import (
    clocks,
    lost_launches,
    no_calls,
    orphans,
    sharing,
    stream_order,
    who,
)
from pinchpoint.importers.health import Fact, health_table
from pinchpoint.regex import regex
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
from pinchpoint.trace.arrays import Ints
from pinchpoint.trace.intervals import NO_ROW, nest, nesting_order
from pinchpoint.trace.kinds import api_kind, collective_kind, without_version

_STEP = regex(r"^(?:ProfilerStep#|train_step_?#?|step[_ #]?)(\d{1,9})$", re.IGNORECASE)
_TIMES = ("start_ns", "duration_ns")
_MOST = 1 << 61  # nanoseconds; no clock counts further
UNKNOWN = -(1 << 63)  # in a column of 64 bits that may be null


class Rows:
    """Rows of one table, a column at a time: eight bytes a number, however many there are.

    What a row does not say, or a number that no column holds, is unknown. Texts are positions of
    names. TypeError for anything that is no whole number.
    """

    def __init__(self, name: str, names: Names) -> None:
        self._name, self._names, self._texts = name, names, _of_names(name)
        self.columns: dict[str, array[int]] = {"start_ns": array("q"), "duration_ns": array("q")}

    def __len__(self) -> int:
        return len(self.columns["start_ns"])

    def add(self, start: int, lasts: int, given: Mapping[str, Any]) -> None:
        """One more row."""
        columns, count = self.columns, len(self)
        for column, value in given.items():
            if value is None:
                continue
            if column in self._texts:
                value = self._names.id_of(value)
            elif not isinstance(value, int):
                raise TypeError(f"{column}: {value!r}")
            elif not UNKNOWN < value < -UNKNOWN:
                continue
            held = columns.get(column)
            if held is None:
                held = columns[column] = array("q")
            missed = count - len(held)
            if missed:
                held.extend([UNKNOWN] * missed)
            held.append(value)
        columns["start_ns"].append(start)
        columns["duration_ns"].append(lasts)

    def add_many(
        self, start: Sequence[int], lasts: Sequence[int], given: Mapping[str, Sequence[Any]]
    ) -> None:
        """As many rows as there are starts, by column; None is unknown."""
        count, id_of = len(self), self._names.id_of
        for column, values in given.items():
            if column in self._texts:
                values = [v if v is None or isinstance(v, int) else id_of(v) for v in values]
            if column not in self.columns and all(value is None for value in values):
                continue
            held = self.columns.setdefault(column, array("q"))
            held.extend([UNKNOWN] * (count - len(held)))
            held.extend([UNKNOWN if value is None else value for value in values])
        self.columns["start_ns"].extend(start)
        self.columns["duration_ns"].extend(lasts)

    def add_columns(self, start: Ints, lasts: Ints, given: Mapping[str, Ints]) -> None:
        """As many rows, by column; texts are positions of names, and UNKNOWN is unknown."""
        count = len(self)
        for column, values in given.items():
            held = self.columns.setdefault(column, array("q"))
            held.extend([UNKNOWN] * (count - len(held)))
            held.frombytes(values.tobytes())
        self.columns["start_ns"].frombytes(start.tobytes())
        self.columns["duration_ns"].frombytes(lasts.tobytes())

    def table(self, zero: int) -> Table:
        """All of them in order of their starts, the longest first; times count from ``zero``."""
        if not len(self):
            return empty_table(self._name)
        start, lasts = (np.frombuffer(self.columns[c], np.int64) for c in _TIMES)
        order = np.lexsort((-lasts, start))
        made: dict[str, Any] = {"start_ns": start[order] - zero, "duration_ns": lasts[order]}
        missing: dict[str, Any] = {}
        for column, held in self.columns.items():
            if column in made:
                continue
            held.extend([UNKNOWN] * (len(self) - len(held)))
            values = np.frombuffer(held, np.int64)[order]
            unknown = values == UNKNOWN
            values[unknown] = 0
            made[column] = values.astype(TABLES[self._name][column].dtype)
            if TABLES[self._name][column].nullable:
                missing[column] = unknown
        return table(self._name, made, missing)


def _of_names(name: str) -> frozenset[str]:
    return frozenset(c for c, spec in TABLES[name].items() if spec.refers_to == "names")


@dataclass
class Timeline:
    """Rows of the host, of calls and of devices; times in ns of one clock, whatever its zero."""

    names: Names = field(default_factory=Names)
    threads: dict[tuple[str, str], int] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)  # of threads
    unusable: int = 0  # rows without times that make sense
    cut: int = 0  # rows of a table with fewer or more cells than its head
    unnamed: int = 0  # kernels whose name is not in the file
    alone: bool = False  # a recorder of programs that need no device

    def __post_init__(self) -> None:
        self.host = Rows("host_ops", self.names)
        self.calls = Rows("api_calls", self.names)
        self.operations = Rows("device_ops", self.names)
        self.marks = Rows("steps", self.names)  # where a file has its steps apart from its ranges

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
        told, collective = of_device(name, kind)
        if collective is not None:
            more.setdefault("collective", collective)
        self._add(self.operations, start, lasts, name=name, device=device, kind=told, **more)

    def on_devices(
        self,
        names: Sequence[str],
        start: Sequence[int],
        lasts: Sequence[int],
        devices: Sequence[int],
        kinds: Sequence[DeviceKind | None],
        **more: Sequence[Any],
    ) -> None:
        """Many of them, by column; of ``more`` None is unknown, and texts are those of names."""
        sound = [0 <= s < _MOST and 0 <= d < _MOST for s, d in zip(start, lasts, strict=True)]
        whats = [of_device(*of) for of in zip(names, kinds, strict=True)]
        given: dict[str, Sequence[Any]] = {
            "name": names,
            "device": devices,
            "kind": [kind for kind, _ in whats],
            "collective": [collective for _, collective in whats],
            **more,
        }
        if not all(sound):
            self.unusable += sound.count(False)
            start, lasts = list(compress(start, sound)), list(compress(lasts, sound))
            given = {column: list(compress(v, sound)) for column, v in given.items()}
        self.operations.add_many(start, lasts, given)

    def columns(self, rows: Rows, start: Ints, lasts: Ints, given: Mapping[str, Ints]) -> None:
        """Many rows of the host, of calls or of devices: see ``Rows.add_columns``."""
        sound = (start >= 0) & (start < _MOST) & (lasts >= 0) & (lasts < _MOST)
        self.unusable += int(np.count_nonzero(~sound))
        if not sound.all():
            given = {column: values[sound] for column, values in given.items()}
        rows.add_columns(start[sound], lasts[sound], given)

    def _add(self, rows: Rows, start: int, lasts: int, **more: Any) -> None:
        if 0 <= start < _MOST and 0 <= lasts < _MOST:
            rows.add(start, lasts, more)
        else:
            self.unusable += 1

    def trace(
        self,
        source: Source,
        devices: Sequence[Device] = (),
        facts: Iterable[Fact] = (),
        **more: Any,
    ) -> Trace:
        """The trace; times count from its first event."""
        every = (self.host, self.calls, self.operations)
        zero = min((min(rows.columns["start_ns"]) for rows in every if len(rows)), default=0)
        host = _nested(self.host.table(zero))
        calls = with_enclosing(self.calls.table(zero), host)
        ops = _linked(self.operations.table(zero), calls, host)
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
            steps=self.marks.table(zero) if len(self.marks) else self._steps(host),
            health=health_table(found, self.names),
            names=self.names.freeze(),
            **more,
        )

    def _health(
        self, calls: Table, ops: Table, threads: Sequence[Thread], *, named: bool
    ) -> Iterable[Fact]:
        if self.unusable:
            yield Fact("times-unsound", self.unusable)
        if self.cut:
            yield Fact("rows-cut", self.cut)
        if self.unnamed:
            detail = "the names of kernels are not in the file, so none of them is told by its name"
            yield Fact("names-missing", self.unnamed, detail)
        if not len(ops):
            yield Fact("cpu-only" if self.alone else "no-device-activity")
            return
        yield from who(ops, named=named, rank=None)
        yield from no_calls(calls, ops)
        yield from stream_order(ops)
        if len(calls):
            yield from orphans(ops)
            yield from clocks(calls, ops)
            yield from sharing(calls, ops, threads)
            yield from lost_launches(calls, ops, self.names)

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


@lru_cache(1 << 12)
def of_device(name: str, kind: DeviceKind | None) -> tuple[int, str | None]:
    """The kind, and which collective; of a kernel the name says whether it is one."""
    collective = collective_kind(name) if kind in (None, DeviceKind.COLLECTIVE) else None
    if kind is None:
        kind = DeviceKind.COLLECTIVE if collective else DeviceKind.KERNEL
    return int(kind), (collective or "other") if kind == DeviceKind.COLLECTIVE else None


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
