"""CSV tables of ``nsys stats``: traces become operations and calls, summaries stay summaries.

Only ``cuda_gpu_trace`` and ``cuda_api_trace`` tell when something happened. A summary
(``cuda_gpu_kern_sum`` and its kin) holds totals by name; it is kept in
``Trace.summaries`` and no timeline question can be asked of it.
"""

import csv
import io
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers._memory import TABLE_TIMES, must_fit
from pinchpoint.importers._packed import unpacked
from pinchpoint.importers._soundness import (
    clocks,
    lost_launches,
    no_calls,
    orphans,
    sharing,
    stream_order,
)
from pinchpoint.importers._timeline import Rows
from pinchpoint.importers.health import Fact, health_table
from pinchpoint.trace import (
    DeviceKind,
    MemoryKind,
    Names,
    Source,
    SummaryTable,
    Table,
    Thread,
    Trace,
    table,
)
from pinchpoint.trace.intervals import NO_ROW
from pinchpoint.trace.kinds import api_kind, collective_kind, without_version

FORMAT = "nsys stats CSV"
FILES = (".csv", "nsys stats --format csv")
READS: tuple[str, ...] = ("calls", "device", "sums")
NOT_READ = ""

_NS = {"ns": 1, "nsec": 1, "us": 10**3, "μs": 10**3, "usec": 10**3, "ms": 10**6, "msec": 10**6,
       "s": 10**9, "sec": 10**9}  # fmt: skip
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20}
_HEADER = re.compile(
    r'^"?(Start ?\(\w+\)"?,|Time ?\(%\)"?,|Total ?\(\w+\)"?,"?Count|Count"?,"?Avg)'
)
_UNIT = re.compile(r"^(.*?) ?\((.+)\)$")
_ENDS = {
    "Host": MemoryKind.HOST, "Device": MemoryKind.DEVICE, "Array": MemoryKind.ARRAY,
    "Pageable": MemoryKind.PAGEABLE, "Pinned": MemoryKind.PINNED, "Managed": MemoryKind.UNIFIED,
    "Unified": MemoryKind.UNIFIED, "Peer": MemoryKind.PEER,
}  # fmt: skip
_COPY = re.compile(r"^\[CUDA (?:Unified Memory )?memcpy (\w+?)-to-(\w+)\]", re.IGNORECASE)
_SHORT_COPY = {"H": "Host", "D": "Device", "P": "Peer", "A": "Array"}
_CSV_FIELD_BYTES = 1024**2  # a demangled name can be long; a field of this length is damage

_IN_BRACKETS = re.compile(r"\((\d{1,9})\)$")


def claims(path: Path, head: bytes) -> bool:
    """A line among the first that is the header of a report of ``nsys stats``."""
    text = head.decode("utf-8", "replace")
    return any(_is_header(line) for line in text.splitlines())


def read(path: Path) -> Trace:
    """The trace of one or several reports in a file, as ``nsys stats --format csv`` prints them."""
    with unpacked(path) as plain:
        must_fit(path, plain.stat().st_size, TABLE_TIMES)
        found = _read(path, plain)
    gpu, api = found.gpu, found.api
    if not found.gpu_rows and not found.api_rows and not found.summaries:
        raise UnreadableFile(f"{path}: the table has no rows", hint="nsys had nothing to report")
    origin = min((min(r.columns["start_ns"]) for r in (gpu, api) if len(r)), default=0)
    calls = api.table(origin) if found.api_rows else None
    ops = _linked(gpu.table(origin), calls) if found.gpu_rows else None
    threads = tuple(Thread(process, thread) for process, thread in found.threads)
    facts = [Fact("rows-cut", found.cut)] if found.cut else []
    if untimed := found.gpu_rows + found.api_rows - len(gpu) - len(api):
        facts.append(Fact("times-missing", untimed))
    if found.gpu_rows and ops is not None:
        facts += [*no_calls(calls, ops), *clocks(calls, ops), *stream_order(ops)]
        facts += [*sharing(calls, ops, threads), *lost_launches(calls, ops, found.names)]
        facts += orphans(ops) if calls is not None else ()
    return Trace(
        source=Source(str(path), FORMAT, path.stat().st_size, bool(found.cut), recorder="nsys"),
        threads=threads,
        summaries=tuple(SummaryTable(tuple(h), tuple(rows)) for h, rows in found.summaries if rows),
        api_calls=calls,
        device_ops=ops,
        health=health_table(facts, found.names),
        names=found.names.freeze(),
    )


class _Found:
    """What is gathered row by row."""

    def __init__(self) -> None:
        self.names = Names()
        self.gpu, self.api = Rows("device_ops", self.names), Rows("api_calls", self.names)
        self.gpu_rows = self.api_rows = self.cut = 0
        self.threads: dict[tuple[str, str], int] = {}
        self.summaries: list[tuple[list[str], list[tuple[str, ...]]]] = []


def _read(path: Path, plain: Path) -> _Found:
    """Every report's rows, as they come; other lines are noise."""
    csv.field_size_limit(_CSV_FIELD_BYTES)
    found = _Found()
    add: Callable[[list[str]], None] | None = None
    width = 0
    try:
        with io.TextIOWrapper(plain.open("rb"), "utf-8-sig", "replace", newline="") as file:
            for cells in csv.reader(file):
                if len(cells) > 3 and _is_header(",".join(cells)):
                    add, width = _adder(found, cells), len(cells)
                elif add is not None and len(cells) == width:
                    add(cells)
                elif add is not None and len(cells) > 1:
                    found.cut += 1
    except csv.Error as error:
        raise UnreadableFile(f"{path}: damaged CSV ({error})", hint="copy it again") from None
    return found


def _adder(found: _Found, header: list[str]) -> Callable[[list[str]], None]:
    """What takes a row of this report."""
    columns = {_bare(c) for c in header}
    plan = _Plan(header)
    if {"Start", "Duration", "Strm"} <= columns:
        return lambda cells: _add_operation(found, plan, cells)
    if {"Start", "Duration", "Name"} <= columns:
        return lambda cells: _add_call(found, plan, cells)
    rows: list[tuple[str, ...]] = []
    found.summaries.append((header, rows))
    return lambda cells: rows.append(tuple(cells))


def _is_header(line: str) -> bool:
    return bool(_HEADER.match(line)) and line.count(",") >= 3


class _Plan:
    """Where the columns of a report are; a quantity's own unit is in the name of its column."""

    def __init__(self, header: list[str]) -> None:
        self._at = {name: number for number, name in enumerate(header)}
        self._quantities = {
            (match[1], units is _NS): (number, units[match[2]])
            for number, name in reversed(list(enumerate(header)))
            for units in (_NS, _BYTES)
            if (match := _UNIT.match(name)) and match[2] in units
        }

    def text(self, cells: list[str], column: str) -> str | None:
        """A cell, or None where there is no such column."""
        at = self._at.get(column)
        return None if at is None else cells[at]

    def ns(self, cells: list[str], column: str) -> int | None:
        """A time in nanoseconds."""
        return _scaled(cells, self._quantities.get((column, True)))

    def size_bytes(self, cells: list[str]) -> int | None:
        """How much was moved."""
        return _scaled(cells, self._quantities.get(("Bytes", False)))


def _scaled(cells: list[str], where: tuple[int, int] | None) -> int | None:
    if where is None:
        return None
    text = cells[where[0]].replace(",", "")
    try:
        value = (float(text) if "." in text else int(text)) * where[1]
    except ValueError:
        return None
    return round(value) if abs(value) < 2**61 else None


def _add_operation(found: _Found, plan: _Plan, cells: list[str]) -> None:
    found.gpu_rows += 1
    start, duration = plan.ns(cells, "Start"), plan.ns(cells, "Duration")
    if start is None or duration is None or duration < 0:
        return
    name = plan.text(cells, "Name") or ""
    kind, collective = _kind(name)
    source, target = _ends(name, plan.text(cells, "SrcMemKd"), plan.text(cells, "DstMemKd"))
    device = _IN_BRACKETS.search(plan.text(cells, "Device") or "")
    moves = kind in (DeviceKind.COPY, DeviceKind.MEMSET)
    found.gpu.add(
        start,
        duration,
        {
            "name": name or "(unnamed)",
            "kind": int(kind if collective is None else DeviceKind.COLLECTIVE),
            "device": int(device[1]) if device else 0,
            "stream": _integer(plan.text(cells, "Strm")),
            "correlation": _integer(plan.text(cells, "CorrId")),
            "bytes": plan.size_bytes(cells) if moves else None,
            "from_memory": source,
            "to_memory": target,
            "grid": _triple(plan, cells, "Grd"),
            "block": _triple(plan, cells, "Blk"),
            "registers": _integer(plan.text(cells, "Reg/Trd")),
            "collective": collective,
        },
    )


@lru_cache(1 << 12)  # a program launches few kernels
def _kind(name: str) -> tuple[DeviceKind, str | None]:
    if "memcpy" in name.lower() and name.startswith("["):
        kind = DeviceKind.COPY
    else:
        kind = DeviceKind.MEMSET if name.startswith("[CUDA memset") else DeviceKind.KERNEL
    return kind, collective_kind(name)


def _add_call(found: _Found, plan: _Plan, cells: list[str]) -> None:
    found.api_rows += 1
    start, duration = plan.ns(cells, "Start"), plan.ns(cells, "Duration")
    if start is None or duration is None or duration < 0:
        return
    given = (plan.text(cells, column) for column in ("Pid", "Tid"))
    who = tuple("unknown" if text is None else text for text in given)
    name = without_version(plan.text(cells, "Name") or "")
    correlation = plan.text(cells, "CorrID")
    if correlation is None:
        correlation = plan.text(cells, "CorrId")
    found.api.add(
        start,
        duration,
        {
            "name": name,
            "kind": int(api_kind(name)),
            "thread": found.threads.setdefault((who[0], who[1]), len(found.threads)),
            "correlation": _integer(correlation),
        },
    )


def _linked(ops: Table, calls: Table | None) -> Table:
    """Operations with the last call of their correlation."""
    if calls is None or not len(calls) or not len(ops):
        return ops
    numbers = calls.filled("correlation", NO_ROW)
    order = np.argsort(numbers, kind="stable")
    wanted = ops.filled("correlation", NO_ROW)
    at = np.searchsorted(numbers[order], wanted, side="right") - 1
    found = order[np.maximum(at, 0)]
    missing = (at < 0) | (numbers[found] != wanted) | (wanted == NO_ROW)
    return table(
        "device_ops", {**ops.columns, "api_call": found}, {**ops.missing, "api_call": missing}
    )


@lru_cache(1 << 12)
def _ends(
    name: str, source_kind: str | None, target_kind: str | None
) -> tuple[int | None, int | None]:
    if (match := _COPY.match(name)) is None:
        short = re.match(r"^\[CUDA memcpy ([HDPA])to([HDPA])\]", name)
        words = (_SHORT_COPY[short[1]], _SHORT_COPY[short[2]]) if short else (None, None)
    else:
        words = (match[1], match[2])
    given = (source_kind or words[0], target_kind or words[1])
    source, target = (int(_ENDS[word]) if word in _ENDS else None for word in given)
    return source, target


def _triple(plan: _Plan, cells: list[str], prefix: str) -> str | None:
    parts = [_integer(plan.text(cells, f"{prefix}{axis}")) for axis in "XYZ"]
    return None if None in parts else "[" + ",".join(map(str, parts)) + "]"


def _bare(column: str) -> str:
    match = _UNIT.match(column)
    return match[1] if match else column


def _integer(text: str | None) -> int | None:
    try:
        value = int((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if 0 <= value < 2**31 else None
