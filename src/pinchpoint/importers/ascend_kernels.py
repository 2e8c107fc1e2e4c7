"""Ascend's tables of what a device ran: ``kernel_details.csv`` and msprof's ``op_summary_*.csv``.

One row an operation, in microseconds since 1970. Nothing of the host is in them: beside
``trace_view.json``, which has both sides, they say shapes. Numbers may carry tabs, or be ``N/A``.
"""

import csv
import io
import json
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers._memory import TABLE_TIMES, must_fit
from pinchpoint.importers._packed import unpacked
from pinchpoint.importers._timeline import Timeline
from pinchpoint.trace import Device, DeviceKind, Source, Trace

FORMAT = "Ascend kernel table"
FILES = ("kernel_details.csv op_summary_*.csv", "torch_npu.profiler, msprof")
READS: tuple[str, ...] = ("device",)
NOT_READ = "hardware counters, shapes"

_START = ("start time(us)", "task start time(us)")
_LASTS = ("duration(us)", "task duration(us)")
_CSV_FIELD_BYTES = 1 << 20  # shapes can be long; a field of this length is damage
_COLLECTIVE = ("hcom", "HCCL", "COMMUNICATION")


def claims(path: Path, head: bytes) -> bool:
    """A CSV header with the start and the length of each operation, as Ascend spells them."""
    first = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].decode("utf-8", "replace")
    columns = [c.strip().strip('"').lower() for c in first.split(",")]
    return any(c in columns for c in _START) and any(c in columns for c in _LASTS)


def read(path: Path) -> Trace:
    """The device side of a recording."""
    timeline = Timeline()
    numbers = set()
    with unpacked(path) as plain:
        must_fit(path, plain.stat().st_size, TABLE_TIMES)
        for row in _rows(path, plain, timeline):
            start, lasts = (_ns(_first(row, columns)) for columns in (_START, _LASTS))
            if start is None or lasts is None:
                timeline.unusable += 1
                continue
            device = _whole(row.get("device_id")) or 0
            numbers.add(device)
            timeline.on_device(
                row.get("name") or row.get("op name") or "(unnamed)",
                start,
                lasts,
                device,
                kind=_kind(row),
                stream=_whole(row.get("stream id")),
                grid=_blocks(row),
            )
    if not len(timeline.operations):
        raise UnreadableFile(f"{path}: the table has no rows", hint="record again, with steps")
    source = Source(str(path), FORMAT, path.stat().st_size, recorder="torch_npu.profiler")
    devices = [Device(n, "Ascend NPU", vendor="huawei") for n in sorted(numbers)]
    return timeline.trace(source, devices)


def _rows(path: Path, plain: Path, timeline: Timeline) -> Iterator[dict[str, str]]:
    csv.field_size_limit(_CSV_FIELD_BYTES)
    try:
        with io.TextIOWrapper(plain.open("rb"), "utf-8-sig", "replace", newline="") as file:
            reader = csv.reader(file)
            header = [cell.strip().lower() for cell in next(reader, [])]
            for cells in reader:
                if len(cells) == len(header):
                    yield dict(zip(header, map(str.strip, cells), strict=True))
                elif cells:
                    timeline.cut += 1
    except csv.Error as error:
        raise UnreadableFile(f"{path}: damaged CSV ({error})", hint="copy it again") from None


def _first(row: dict[str, str], columns: tuple[str, ...]) -> str:
    return next((row[c] for c in columns if c in row), "")


def _ns(text: str) -> int | None:
    """Microseconds since 1970 have more digits than a float holds."""
    try:
        value = Decimal(text) * 1000
    except InvalidOperation:
        return None
    return round(value) if value.is_finite() and abs(value) < 1 << 61 else None


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else None


def _kind(row: dict[str, str]) -> DeviceKind | None:
    core = row.get("accelerator core") or row.get("task type") or ""
    what = row.get("type") or row.get("op type") or ""
    if any(sign in text for sign in _COLLECTIVE for text in (core, what)):
        return DeviceKind.COLLECTIVE
    return None


def _blocks(row: dict[str, str]) -> str | None:
    blocks = _whole(row.get("block num") or row.get("block dim"))
    return None if blocks is None else json.dumps([blocks, 1, 1], separators=(",", ":"))
