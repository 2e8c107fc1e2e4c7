"""CSV tables of ``nsys stats``: traces become operations and calls, summaries stay summaries.

Only ``cuda_gpu_trace`` and ``cuda_api_trace`` tell when something happened. A summary
(``cuda_gpu_kern_sum`` and its kin) holds totals by name; it is kept in
``Trace.summaries`` and no timeline question can be asked of it.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers._soundness import (
    clocks,
    lost_launches,
    no_calls,
    orphans,
    sharing,
    stream_order,
)
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

Row = dict[str, str]


def claims(path: Path, head: bytes) -> bool:
    """A line among the first that is the header of a report of ``nsys stats``."""
    text = head.decode("utf-8", "replace")
    return any(_is_header(line) for line in text.splitlines())


def read(path: Path) -> Trace:
    """The trace of one or several reports in a file, as ``nsys stats --format csv`` prints them."""
    names = Names()
    gpu: list[Row] = []
    api: list[Row] = []
    summaries: list[SummaryTable] = []
    cut = 0
    for header, rows, broken in _reports(path):
        cut += broken
        columns = {_bare(c) for c in header}
        if {"Start", "Duration", "Strm"} <= columns:
            gpu += rows
        elif {"Start", "Duration", "Name"} <= columns:
            api += rows
        elif rows:
            summaries.append(SummaryTable(tuple(header), tuple(tuple(r.values()) for r in rows)))
    if not gpu and not api and not summaries:
        raise UnreadableFile(f"{path}: the table has no rows", hint="nsys had nothing to report")
    starts = [t for r in (*gpu, *api) if (t := _quantity(r, "Start", _NS)) is not None]
    origin = min(starts, default=0)
    threads, calls = _api_table(api, names, origin)
    ops = _gpu_table(gpu, names, origin, calls)
    facts = [Fact("rows-cut", cut)] if cut else []
    if untimed := len(gpu) + len(api) - sum(len(t) for t in (ops, calls) if t is not None):
        facts.append(Fact("times-missing", untimed))
    if gpu:
        facts += [*no_calls(calls, ops), *clocks(calls, ops), *stream_order(ops)]
        facts += [*sharing(calls, ops, threads), *lost_launches(calls, ops, names)]
        facts += orphans(ops) if calls is not None else ()
    return Trace(
        source=Source(str(path), FORMAT, path.stat().st_size, bool(cut), recorder="nsys"),
        threads=threads,
        summaries=tuple(summaries),
        api_calls=calls,
        device_ops=ops,
        health=health_table(facts, names),
        names=names.freeze(),
    )


def _is_header(line: str) -> bool:
    return bool(_HEADER.match(line)) and line.count(",") >= 3


def _reports(path: Path) -> Iterator[tuple[list[str], list[Row], int]]:
    """Header, rows and number of cut rows of each report; other lines are noise."""
    csv.field_size_limit(_CSV_FIELD_BYTES)
    try:
        with io.TextIOWrapper(path.open("rb"), "utf-8-sig", "replace", newline="") as file:
            lines: Iterable[str] = file
            header: list[str] | None = None
            rows: list[Row] = []
            cut = 0
            for cells in csv.reader(lines):
                if _is_header(",".join(cells)):
                    if header is not None:
                        yield header, rows, cut
                    header, rows, cut = cells, [], 0
                elif header is not None and len(cells) == len(header):
                    rows.append(dict(zip(header, cells, strict=True)))
                elif header is not None and len(cells) > 1:
                    cut += 1
            if header is not None:
                yield header, rows, cut
    except csv.Error as error:
        raise UnreadableFile(f"{path}: damaged CSV ({error})", hint="copy it again") from None


def _gpu_table(rows: list[Row], names: Names, origin: int, calls: Table | None) -> Table | None:
    numbers = [] if calls is None else calls.filled("correlation", -1).tolist()
    launched_by = {number: i for i, number in enumerate(numbers)}
    found = []
    for row in rows:
        start, duration = _quantity(row, "Start", _NS), _quantity(row, "Duration", _NS)
        if start is not None and duration is not None and duration >= 0:
            operation = _operation(row, start - origin, duration)
            found.append(operation | {"api_call": launched_by.get(operation["correlation"])})
    return None if not rows else _table("device_ops", found, names)


def _operation(row: Row, start: int, duration: int) -> dict[str, Any]:
    name = row.get("Name", "")
    source, target = _ends(name, row)
    collective = collective_kind(name)
    copy, memset = (
        "memcpy" in name.lower() and name.startswith("["),
        name.startswith("[CUDA memset"),
    )
    kind = DeviceKind.COPY if copy else DeviceKind.MEMSET if memset else DeviceKind.KERNEL
    device = re.search(r"\((\d+)\)$", row.get("Device", ""))
    return {
        "start_ns": start,
        "duration_ns": duration,
        "name": name or "(unnamed)",
        "kind": DeviceKind.COLLECTIVE if collective else kind,
        "device": int(device[1]) if device else 0,
        "stream": _integer(row.get("Strm")),
        "correlation": _integer(row.get("CorrId")),
        "bytes": _quantity(row, "Bytes", _BYTES) if copy or memset else None,
        "from_memory": source,
        "to_memory": target,
        "grid": _triple(row, "Grd"),
        "block": _triple(row, "Blk"),
        "registers": _integer(row.get("Reg/Trd")),
        "collective": collective,
    }


def _api_table(
    rows: list[Row], names: Names, origin: int
) -> tuple[tuple[Thread, ...], Table | None]:
    threads: dict[tuple[str, str], int] = {}
    found = []
    for row in rows:
        start, duration = _quantity(row, "Start", _NS), _quantity(row, "Duration", _NS)
        if start is None or duration is None or duration < 0:
            continue
        who = (row.get("Pid", "unknown"), row.get("Tid", "unknown"))
        name = without_version(row.get("Name", ""))
        found.append(
            {
                "start_ns": start - origin,
                "duration_ns": duration,
                "name": name,
                "kind": api_kind(name),
                "thread": threads.setdefault(who, len(threads)),
                "correlation": _integer(row.get("CorrID", row.get("CorrId"))),
            }
        )
    made = _table("api_calls", found, names) if rows else None
    return tuple(Thread(process, thread) for process, thread in threads), made


def _table(name: str, rows: list[dict[str, Any]], names: Names) -> Table:
    rows.sort(key=lambda r: (r["start_ns"], -r["duration_ns"]))
    columns, missing = {}, {}
    for column in rows[0] if rows else ():
        values = [r[column] for r in rows]
        if any(isinstance(v, str) for v in values):
            values = [None if v is None else names.id_of(v) for v in values]
        columns[column] = np.array([0 if v is None else v for v in values], np.int64)
        missing[column] = np.array([v is None for v in values])
    if not columns:
        columns = {c: np.zeros(0, np.int64) for c in ("start_ns", "duration_ns", "name", "kind")}
        columns["device" if name == "device_ops" else "thread"] = np.zeros(0, np.int64)
    return table(name, columns, missing)


def _ends(name: str, row: Row) -> tuple[int | None, int | None]:
    if (match := _COPY.match(name)) is None:
        short = re.match(r"^\[CUDA memcpy ([HDPA])to([HDPA])\]", name)
        words = (_SHORT_COPY[short[1]], _SHORT_COPY[short[2]]) if short else (None, None)
    else:
        words = (match[1], match[2])
    given = (row.get("SrcMemKd") or words[0], row.get("DstMemKd") or words[1])
    source, target = (_ENDS.get(word) if word else None for word in given)
    return source, target


def _triple(row: Row, prefix: str) -> str | None:
    parts = [_integer(row.get(f"{prefix}{axis}")) for axis in "XYZ"]
    return None if None in parts else "[" + ",".join(map(str, parts)) + "]"


def _bare(column: str) -> str:
    match = _UNIT.match(column)
    return match[1] if match else column


def _quantity(row: Row, column: str, units: dict[str, int]) -> int | None:
    """A value in the base unit; its own unit is in the name of its column."""
    for key, text in row.items():
        match = _UNIT.match(key)
        if match is None or match[1] != column or match[2] not in units:
            continue
        try:
            value = float(text.replace(",", "")) if "." in text else int(text.replace(",", ""))
        except ValueError:
            return None
        scaled = value * units[match[2]]
        return round(scaled) if abs(scaled) < 2**61 else None
    return None


def _integer(text: str | None) -> int | None:
    try:
        value = int((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if 0 <= value < 2**31 else None
