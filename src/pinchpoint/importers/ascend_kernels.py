"""Ascend's tables of what a device ran: ``kernel_details.csv`` and msprof's ``op_summary_*.csv``.

One row an operation, in microseconds since 1970. Nothing of the host is in them: beside
``trace_view.json``, which has both sides, they say shapes. Numbers may carry tabs, or be ``N/A``.
A column ``Step Id`` says which step launched a row: a step is from its first row to its last.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from itertools import compress, islice
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.trace import Device, DeviceKind, Source, Trace

if TYPE_CHECKING:
    from pinchpoint.importers.assembly.timeline import Timeline


FORMAT = "Ascend kernel table"
FILES = ("kernel_details.csv op_summary_*.csv", "torch_npu.profiler, msprof")
READS: tuple[str, ...] = ("device", "steps")
NOT_READ = "hardware counters, shapes"

_START = ("start time(us)", "task start time(us)")
_LASTS = ("duration(us)", "task duration(us)")
_CSV_FIELD_BYTES = 1 << 20  # shapes can be long; a field of this length is damage
_ROWS_AT_ONCE = 500  # of 40 cells each: some 1 MB
_KINDS = ("accelerator core", "task type", "type", "op type")
_COLLECTIVE = ("hcom", "HCCL", "COMMUNICATION")


def claims(path: Path, head: bytes) -> bool:
    """A CSV header with the start and the length of each operation, as Ascend spells them."""
    first = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].decode("utf-8", "replace")
    columns = [c.strip().strip('"').lower() for c in first.split(",")]
    return any(c in columns for c in _START) and any(c in columns for c in _LASTS)


def read(path: Path) -> Trace:
    """The device side of a recording."""
    from pinchpoint.importers.assembly.timeline import Timeline

    timeline = Timeline()
    numbers = set[int]()
    spans: _Spans = {}
    from pinchpoint.importers.files.memory import TABLE_TIMES, must_fit

    with unpacked(path) as plain:
        must_fit(path, plain.stat().st_size, TABLE_TIMES)
        for columns in _columns(path, plain, timeline):
            numbers.update(_add(timeline, columns, spans))
    if not len(timeline.operations):
        raise UnreadableFile(f"{path}: the table has no rows", hint="record again, with steps")
    source = Source(str(path), FORMAT, path.stat().st_size, recorder="torch_npu.profiler")
    devices = [Device(n, "Ascend NPU", vendor="huawei") for n in sorted(numbers)]
    _mark_steps(timeline, spans)
    return timeline.trace(source, devices)


_Columns = dict[str, Sequence[str]]
_Spans = dict[int, tuple[int, int]]  # first start and last end of each step


def _mark_steps(timeline: "Timeline", spans: _Spans) -> None:
    """Each step as a marker, on a thread that stands for the host's."""
    thread = timeline.thread("", "Step Id", "Step Id") if spans else 0
    for number, (start, end) in spans.items():
        what = {"name": f"step {number}", "thread": thread, "number": number}
        timeline.marks.add(start, end - start, what)


def _columns(path: Path, plain: Path, timeline: "Timeline") -> Iterator[_Columns]:
    """Some rows at a time, by column."""
    import csv  # every file is asked whether it is such a table

    csv.field_size_limit(_CSV_FIELD_BYTES)
    try:
        with io.TextIOWrapper(plain.open("rb"), "utf-8-sig", "replace", newline="") as file:
            reader = csv.reader(file)
            header = [cell.strip().lower() for cell in next(reader, [])]
            while rows := list(islice(reader, _ROWS_AT_ONCE)):
                whole = [cells for cells in rows if len(cells) == len(header)]
                timeline.cut += sum(map(bool, rows)) - len(whole)
                if whole:
                    yield dict(zip(header, zip(*whole, strict=True), strict=True))
    except csv.Error as error:
        raise UnreadableFile(f"{path}: damaged CSV ({error})", hint="copy it again") from None


def _add(timeline: "Timeline", columns: _Columns, spans: _Spans) -> Iterable[int]:
    """Put the rows on their devices, whose numbers are told; widen the spans of their steps."""
    none = [""] * len(next(iter(columns.values())))
    starts, lasts = (
        [_ns(text) for text in next((columns[c] for c in names if c in columns), none)]
        for names in (_START, _LASTS)
    )
    timed = [s is not None and d is not None for s, d in zip(starts, lasts, strict=True)]
    timeline.unusable += timed.count(False)

    def cells(*names: str) -> Iterable[tuple[str, ...]]:
        return compress(zip(*(columns.get(name, none) for name in names), strict=True), timed)

    whats = [_what(*of) for of in cells("name", "op name", *_KINDS)]
    devices = [_whole(text.strip()) or 0 for (text,) in cells("device_id")]
    begun, took = (cast(list[int], list(compress(of, timed))) for of in (starts, lasts))
    for (text,), start, lasting in zip(cells("step id"), begun, took, strict=True):
        if (number := _whole(text.strip())) is not None:
            first, last = spans.get(number, (start, start))
            spans[number] = min(first, start), max(last, start + lasting)
    timeline.on_devices(
        [name for name, _ in whats],
        begun,
        took,
        devices,
        [kind for _, kind in whats],
        stream=[_whole(text.strip()) for (text,) in cells("stream id")],
        grid=[_blocks(*of) for of in cells("block num", "block dim")],
    )
    return devices


def _ns(text: str) -> int | None:
    """Microseconds since 1970 have more digits than a float holds."""
    text = text.strip()
    whole, _, thousandths = text.partition(".")
    digits = whole + thousandths
    if len(thousandths) <= 3 and len(digits) <= 18 and digits.isdecimal() and digits.isascii():
        return int(whole or "0") * 1000 + int(thousandths.ljust(3, "0"))
    try:
        value = Decimal(text) * 1000
    except InvalidOperation:
        return None
    return round(value) if value.is_finite() and abs(value) < 1 << 61 else None


def _whole(text: str) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else None


@lru_cache(1 << 12)  # a program runs few operations, many times each
def _what(
    name: str, op_name: str, core: str, task: str, what: str, op: str
) -> tuple[str, DeviceKind | None]:
    told = (core.strip() or task.strip(), what.strip() or op.strip())
    collective = any(sign in text for sign in _COLLECTIVE for text in told)
    shown = name.strip() or op_name.strip() or "(unnamed)"
    return shown, DeviceKind.COLLECTIVE if collective else None


@lru_cache(1 << 12)
def _blocks(number: str, dimension: str) -> str | None:
    blocks = _whole(number.strip() or dimension.strip())
    return None if blocks is None else f"[{blocks},1,1]"
