"""Tables of ``nsys stats``: traces become operations and calls, summaries stay summaries.

As CSV, or as they are printed: columns below a line of dashes that says how wide each is.

Only ``cuda_gpu_trace`` and ``cuda_api_trace`` tell when something happened. A summary
(``cuda_gpu_kern_sum`` and its kin) holds totals by name; it is kept in
``Trace.summaries`` and no timeline question can be asked of it.
"""

import csv
import io
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.assembly.soundness import (
    clocks,
    lost_launches,
    no_calls,
    orphans,
    sharing,
    stream_order,
)
from pinchpoint.importers.assembly.timeline import Rows
from pinchpoint.importers.files.columns import printed_cells
from pinchpoint.importers.files.memory import TABLE_TIMES, must_fit
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.health import Fact, health_table
from pinchpoint.regex import regex
from pinchpoint.trace import (
    Device,
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
FILES = (".csv .txt", "nsys stats, nsys profile --stats=true")
READS: tuple[str, ...] = ("calls", "device", "sums")
NOT_READ = ""

_NS = {"ns": 1, "nsec": 1, "us": 10**3, "μs": 10**3, "usec": 10**3, "ms": 10**6, "msec": 10**6,
       "s": 10**9, "sec": 10**9}  # fmt: skip
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20}
# The header that nvprof prints has a column "Time" beside "Time(%)".
_HEADER = regex(
    r'^"?(Start ?\(\w+\)"?,|Time ?\(%\)"?,(?!"?Time"?,)|Total ?\(\w+\)"?,"?Count|Count"?,"?Avg)'
)
_UNIT = regex(r"^(.*?) ?\((.+)\)$")
_ENDS = {
    "Host": MemoryKind.HOST, "Device": MemoryKind.DEVICE, "Array": MemoryKind.ARRAY,
    "Pageable": MemoryKind.PAGEABLE, "Pinned": MemoryKind.PINNED, "Managed": MemoryKind.UNIFIED,
    "Unified": MemoryKind.UNIFIED, "Peer": MemoryKind.PEER,
}  # fmt: skip
_COPY = regex(r"^\[CUDA (?:Unified Memory )?memcpy (\w+?)-to-(\w+)\]", re.IGNORECASE)
_SHORT_COPY = {"H": "Host", "D": "Device", "P": "Peer", "A": "Array"}
_CSV_FIELD_BYTES = 1024**2  # a demangled name can be long; a field of this length is damage

_ROWS_AT_ONCE = 1_000  # of 20 cells each: some 1 MB
_MOST_WHOLE = 2**31  # sizes, devices and numbers of calls fit; others are looked at one by one
_Columns = list[tuple[str, ...]]

_LOOK_BYTES = 1 << 16  # a program may have printed before its tables
_IN_BRACKETS = regex(r"\((\d{1,9})\)$")


def claims(path: Path, head: bytes) -> bool:
    """A line among the first that is the header of a report of ``nsys stats``."""
    lines = head.decode("utf-8", "replace").splitlines()
    return any(_is_header(line.split(",")) for line in lines) or any(
        map(_is_header, printed_cells(lines))
    )


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
        devices=tuple(
            Device(n, name, vendor="nvidia") for n, name in sorted(found.devices.items())
        ),
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
        self.devices: dict[int, str] = {}  # by number, as reports call them
        self.summaries: list[tuple[list[str], list[tuple[str, ...]]]] = []


def _read(path: Path, plain: Path) -> _Found:
    """Every report's rows, as they come; other lines are noise."""
    csv.field_size_limit(_CSV_FIELD_BYTES)
    found = _Found()
    with plain.open("rb") as file:
        first = file.read(_LOOK_BYTES).decode("utf-8-sig", "replace").splitlines()
    is_csv = any(_is_header(line.split(",")) for line in first)
    add: Callable[[list[list[str]]], None] | None = None
    width = 0
    waiting: list[list[str]] = []
    try:
        with io.TextIOWrapper(plain.open("rb"), "utf-8-sig", "replace", newline="") as file:
            for cells in csv.reader(file) if is_csv else printed_cells(file):
                if len(cells) > 3 and _is_header(cells):
                    if add is not None:
                        add(waiting)
                    add, width, waiting = _adder(found, cells), len(cells), []
                elif add is not None and len(cells) == width:
                    waiting.append(cells)
                    if len(waiting) == _ROWS_AT_ONCE:
                        add(waiting)
                        waiting = []
                elif add is not None and len(cells) > 1:
                    found.cut += 1
    except csv.Error as error:
        raise UnreadableFile(f"{path}: damaged CSV ({error})", hint="copy it again") from None
    if add is not None:
        add(waiting)
    return found


def _adder(found: _Found, header: list[str]) -> Callable[[list[list[str]]], None]:
    """What takes rows of this report."""
    columns = {_bare(c) for c in header}
    plan = _Plan(header)
    if {"Start", "Duration", "Strm"} <= columns:
        return lambda rows: _add_operations(found, plan, rows)
    if {"Start", "Duration", "Name"} <= columns:
        return lambda rows: _add_calls(found, plan, rows)
    kept: list[tuple[str, ...]] = []
    found.summaries.append((header, kept))
    return lambda rows: kept.extend(map(tuple, rows))


def _is_header(cells: list[str]) -> bool:
    return len(cells) > 3 and bool(_HEADER.match(",".join(cells[:2]) + ","))


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

    def has(self, column: str) -> bool:
        """Whether there is such a column."""
        return column in self._at

    def texts(self, columns: _Columns, column: str) -> Sequence[str | None]:
        """The cells of a column, or None for each where there is none."""
        at = self._at.get(column)
        return [None] * len(columns[0]) if at is None else columns[at]

    def whole(self, columns: _Columns, column: str) -> list[int | None]:
        """The numbers of a column."""
        given = self.texts(columns, column)
        try:
            values = list(map(int, given))  # type: ignore[arg-type]
        except (ValueError, TypeError):
            return [*map(_integer, given)]
        sound = min(values, default=0) >= 0 and max(values, default=0) < _MOST_WHOLE
        return [*values] if sound else [*map(_integer, given)]

    def ns(self, columns: _Columns, column: str) -> list[int | None]:
        """Times in nanoseconds."""
        return self._scaled(columns, (column, True))

    def size_bytes(self, columns: _Columns) -> list[int | None]:
        """How much was moved."""
        return self._scaled(columns, ("Bytes", False))

    def _scaled(self, columns: _Columns, what: tuple[str, bool]) -> list[int | None]:
        where = self._quantities.get(what)
        if where is None:
            return [None] * len(columns[0])
        at, unit = where
        return [_scaled(text, unit) for text in columns[at]]


def _scaled(text: str, unit: int) -> int | None:
    text = text.replace(",", "")
    try:
        value = (float(text) if "." in text else int(text)) * unit
    except ValueError:
        return None
    return round(value) if abs(value) < 2**61 else None


def _timed(plan: _Plan, rows: list[list[str]]) -> tuple[_Columns, list[int], list[int]]:
    """The columns, starts and lengths of the rows whose times make sense."""
    columns: _Columns = list(zip(*rows, strict=True))
    starts, lasts = plan.ns(columns, "Start"), plan.ns(columns, "Duration")
    sound = [s is not None and d is not None and d >= 0 for s, d in zip(starts, lasts, strict=True)]
    if not all(sound):
        columns = [tuple(compress(column, sound)) for column in columns]
        starts, lasts = list(compress(starts, sound)), list(compress(lasts, sound))
    return columns, cast(list[int], starts), cast(list[int], lasts)


def _add_operations(found: _Found, plan: _Plan, rows: list[list[str]]) -> None:
    if not rows:
        return
    found.gpu_rows += len(rows)
    columns, starts, lasts = _timed(plan, rows)
    names = plan.texts(columns, "Name")
    ends = (plan.texts(columns, column) for column in ("SrcMemKd", "DstMemKd"))
    whats = [_what(*given) for given in zip(names, *ends, strict=True)]
    called = plan.texts(columns, "Device")
    for text in set(called):
        if name := _IN_BRACKETS.sub("", text or "").strip():
            found.devices.setdefault(_device(text), name)
    given: dict[str, Sequence[Any]] = {
        "name": [name or "(unnamed)" for name in names],
        "kind": [what.kind for what in whats],
        "device": [_device(text) for text in called],
        "stream": plan.whole(columns, "Strm"),
        "correlation": plan.whole(columns, "CorrId"),
        "from_memory": [what.source for what in whats],
        "to_memory": [what.target for what in whats],
        "collective": [what.collective for what in whats],
    }
    if any(what.moves for what in whats):
        moved = zip(plan.size_bytes(columns), whats, strict=True)
        given["bytes"] = [size if what.moves else None for size, what in moved]
    for column, prefix in (("grid", "Grd"), ("block", "Blk")):
        if all(plan.has(f"{prefix}{axis}") for axis in "XYZ"):
            parts = zip(*(plan.whole(columns, f"{prefix}{axis}") for axis in "XYZ"), strict=True)
            given[column] = [_triple(*part) for part in parts]
    if plan.has("Reg/Trd"):
        given["registers"] = plan.whole(columns, "Reg/Trd")
    found.gpu.add_many(starts, lasts, given)


class _What(NamedTuple):
    """What the name of an operation, and the kinds of memory beside it, say."""

    kind: int
    moves: bool
    collective: str | None
    source: int | None
    target: int | None


@lru_cache(1 << 12)
def _what(name: str | None, source_kind: str | None, target_kind: str | None) -> _What:
    kind, collective = _kind(name or "")
    ends = _ends(name or "", source_kind, target_kind)
    moves = kind in (DeviceKind.COPY, DeviceKind.MEMSET)
    told = kind if collective is None else DeviceKind.COLLECTIVE
    return _What(int(told), moves, collective, *ends)


@lru_cache(1 << 8)
def _device(text: str | None) -> int:
    found = _IN_BRACKETS.search(text or "")
    return int(found[1]) if found else 0


def _kind(name: str) -> tuple[DeviceKind, str | None]:
    if "memcpy" in name.lower() and name.startswith("["):
        kind = DeviceKind.COPY
    else:
        kind = DeviceKind.MEMSET if name.startswith("[CUDA memset") else DeviceKind.KERNEL
    return kind, collective_kind(name)


def _add_calls(found: _Found, plan: _Plan, rows: list[list[str]]) -> None:
    if not rows:
        return
    found.api_rows += len(rows)
    columns, starts, lasts = _timed(plan, rows)
    who = zip(*(plan.texts(columns, column) for column in ("Pid", "Tid")), strict=True)
    threads = found.threads
    names = [_call(name) for name in plan.texts(columns, "Name")]
    given: dict[str, Sequence[Any]] = {
        "name": [name for name, _ in names],
        "kind": [kind for _, kind in names],
        "thread": [
            threads.setdefault((_or_unknown(pid), _or_unknown(tid)), len(threads))
            for pid, tid in who
        ],
        "correlation": plan.whole(columns, "CorrID" if plan.has("CorrID") else "CorrId"),
    }
    found.api.add_many(starts, lasts, given)


@lru_cache(1 << 12)  # a program calls few functions
def _call(name: str | None) -> tuple[str, int]:
    bare = without_version(name or "")
    return bare, int(api_kind(bare))


def _or_unknown(text: str | None) -> str:
    return "unknown" if text is None else text


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


@lru_cache(1 << 12)
def _triple(x: int | None, y: int | None, z: int | None) -> str | None:
    return None if x is None or y is None or z is None else f"[{x},{y},{z}]"


def _bare(column: str) -> str:
    match = _UNIT.match(column)
    return match[1] if match else column


def _integer(text: str | None) -> int | None:
    try:
        value = int((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if 0 <= value < _MOST_WHOLE else None
