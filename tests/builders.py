"""Builds small traces by hand, so that a test knows its answer beforehand.

>>> builder = TraceBuilder()
>>> call = builder.launch(at=0, takes=5, kernel="gemm", runs_at=10, for_ns=20)
>>> trace = builder.trace()
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pinchpoint.trace import (
    TABLES,
    ApiKind,
    Device,
    DeviceKind,
    HostKind,
    Names,
    Source,
    Thread,
    Trace,
    empty_table,
    table,
)


@dataclass
class TraceBuilder:
    """Collects rows as dictionaries; ``trace()`` sorts, links and freezes them."""

    threads: list[Thread] = field(default_factory=lambda: [Thread("1", "1", "main")])
    devices: list[Device] = field(
        default_factory=lambda: [
            Device(0, "NVIDIA H100 80GB HBM3", 85_017_493_504, 132, (9, 0), "nvidia")
        ]
    )
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    correlation: int = 0

    def thread(self, label: str) -> int:
        """A further host thread; returns its position."""
        self.threads.append(Thread("1", str(len(self.threads) + 1), label))
        return len(self.threads) - 1

    def add(self, table_name: str, **row: Any) -> dict[str, Any]:
        """Add a row; text for names columns, None or absence for null."""
        self.rows.setdefault(table_name, []).append(row)
        return row

    def op(self, name: str, at: int, takes: int, *, thread: int = 0, **more: Any) -> dict[str, Any]:
        """An operator on a host thread."""
        more.setdefault("kind", HostKind.OPERATOR)
        return self.add(
            "host_ops", name=name, start_ns=at, duration_ns=takes, thread=thread, **more
        )

    def python(self, name: str, at: int, takes: int, *, thread: int = 0) -> dict[str, Any]:
        """A Python function, spelt as Kineto does: ``file.py(12): function``."""
        return self.op(name, at, takes, thread=thread, kind=HostKind.PYTHON)

    def annotation(self, name: str, at: int, takes: int, *, thread: int = 0) -> dict[str, Any]:
        """A user annotation."""
        return self.op(name, at, takes, thread=thread, kind=HostKind.ANNOTATION)

    def step(self, number: int, at: int, takes: int) -> None:
        """A ProfilerStep marker: annotation and row of ``steps``."""
        name = f"ProfilerStep#{number}"
        self.annotation(name, at, takes)
        self.add("steps", name=name, number=number, start_ns=at, duration_ns=takes, thread=0)

    def api(
        self, name: str, at: int, takes: int, *, kind: ApiKind, thread: int = 0, **more: Any
    ) -> dict[str, Any]:
        """A runtime call that starts nothing on the device."""
        self.correlation += 1
        return self.add(
            "api_calls",
            name=name,
            start_ns=at,
            duration_ns=takes,
            kind=kind,
            thread=thread,
            correlation=self.correlation,
            **more,
        )

    def launch(
        self,
        at: int,
        takes: int,
        kernel: str,
        runs_at: int,
        for_ns: int,
        *,
        thread: int = 0,
        stream: int = 7,
        device: int = 0,
        **more: Any,
    ) -> dict[str, Any]:
        """A kernel launch and its kernel."""
        call = self.api("cudaLaunchKernel", at, takes, kind=ApiKind.LAUNCH, thread=thread)
        more.setdefault("kind", DeviceKind.KERNEL)
        self.add(
            "device_ops",
            name=kernel,
            start_ns=runs_at,
            duration_ns=for_ns,
            device=device,
            stream=stream,
            correlation=call["correlation"],
            **more,
        )
        return call

    def copy(
        self,
        at: int,
        takes: int,
        name: str,
        runs_at: int,
        for_ns: int,
        *,
        size: int,
        source: int,
        target: int,
        thread: int = 0,
        stream: int = 7,
    ) -> dict[str, Any]:
        """A memory copy: the call and the operation; ``source``/``target`` are MemoryKind."""
        call = self.api("cudaMemcpyAsync", at, takes, kind=ApiKind.COPY, thread=thread)
        self.add(
            "device_ops",
            name=name,
            kind=DeviceKind.COPY,
            start_ns=runs_at,
            duration_ns=for_ns,
            device=0,
            stream=stream,
            correlation=call["correlation"],
            bytes=size,
            from_memory=source,
            to_memory=target,
        )
        return call

    def trace(self, **facts: Any) -> Trace:
        """The frozen trace; tables without rows are empty, ``facts`` override fields."""
        for rows in self.rows.values():
            rows.sort(key=lambda r: (r.get("start_ns", r.get("time_ns")), -r.get("duration_ns", 0)))
        self._link()
        tables: dict[str, Any] = {
            name: empty_table(name) for name in ("host_ops", "api_calls", "device_ops", "steps")
        }
        tables |= {name: self._table(name, rows) for name, rows in self.rows.items() if rows}
        tables |= {"names": self.names.freeze()} | facts
        tables.setdefault("source", Source("built by hand", "test", recorder="torch.profiler"))
        return Trace(threads=tuple(self.threads), devices=tuple(self.devices), **tables)

    def _link(self) -> None:
        host, api = self.rows.get("host_ops", []), self.rows.get("api_calls", [])
        enclosing = _Enclosing(host)
        for row, parent in zip(host, enclosing.parents, strict=True):
            row.setdefault("parent", parent)
        for row in api:
            row.setdefault("host_op", enclosing.innermost(row))
        calls = {row["correlation"]: i for i, row in enumerate(api)}
        for row in self.rows.get("device_ops", []):
            call = calls.get(row.get("correlation"))
            row.setdefault("api_call", call)
            row.setdefault("host_op", None if call is None else api[call]["host_op"])

    def _table(self, name: str, rows: list[dict[str, Any]]) -> Any:
        columns, masks = {}, {}
        for column, spec in TABLES[name].items():
            values = [row.get(column) for row in rows]
            if spec.refers_to == "names":
                values = [None if v is None else self.names.id_of(v) for v in values]
            columns[column] = np.array([0 if v is None else v for v in values], spec.dtype)
            masks[column] = np.array([v is None for v in values])
        return table(name, columns, masks)


class _Enclosing:
    """Which sorted rows enclose others of their thread."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.parents: list[int | None] = []
        self.starts: dict[int, list[int]] = {}  # by thread
        self.places: dict[int, list[int]] = {}
        for place, row in enumerate(rows):
            self.parents.append(self.innermost(row))
            self.starts.setdefault(row["thread"], []).append(row["start_ns"])
            self.places.setdefault(row["thread"], []).append(place)

    def innermost(self, inner: dict[str, Any]) -> int | None:
        """The last row so far that begins no later and ends no earlier.

        Whatever encloses ``inner`` and begins before a row that ends too early encloses that row
        as well: the way leads over parents.
        """
        before = bisect_right(self.starts.get(inner["thread"], ()), inner["start_ns"])
        at = self.places[inner["thread"]][before - 1] if before else None
        while at is not None and _end(self.rows[at]) < _end(inner):
            at = self.parents[at]
        return at


def _end(row: dict[str, Any]) -> int:
    return row["start_ns"] + row["duration_ns"]


def with_what_goes(base_ns, left_ns):
    """What is said of a step on a CPU whose cause, gone altogether, leaves ``left_ns``: caches and
    allocations that it had a part in go with it, 0.14 of it and of what stays at most."""
    return max(base_ns - 1.14 * (base_ns - left_ns), 0.86 * left_ns)
