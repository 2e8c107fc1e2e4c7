"""What the device did, as ``nvprof --print-gpu-trace --csv`` wrote it (CUDA 4 to 12).

A row an operation below a line of column names and one of their units. Printed without ``--csv``
a start has five digits behind its point: what began within 10 µs cannot be told apart, so that form
is refused. Of the host nothing is in the file.
"""

import io
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.regex import regex
from pinchpoint.trace import Device, DeviceKind, MemoryKind, Source, Trace

if TYPE_CHECKING:
    from pinchpoint.importers.assembly.timeline import Timeline

FORMAT = "nvprof GPU trace"
FILES = (".csv .log", "nvprof --print-gpu-trace --csv")
READS: tuple[str, ...] = ("device",)
NOT_READ = "sums, calls (--print-api-trace), printed tables (without --csv)"

_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_BYTES = {"B": 1.0, "KB": 1024.0, "MB": 1024.0**2, "GB": 1024.0**3}  # nvprof counts by 1,024
_HEADER = regex(rb'^"?Start"?,"?Duration"?,[^\n]{0,600}?"?Name"?', 8)  # at the start of a line
_NUMBER = regex(r"\((\d{1,4})\)$")
_ENDS = {
    "Host": MemoryKind.HOST, "Device": MemoryKind.DEVICE, "Pageable": MemoryKind.PAGEABLE,
    "Pinned": MemoryKind.PINNED, "Managed": MemoryKind.UNIFIED, "Array": MemoryKind.ARRAY,
}  # fmt: skip
_COPY = regex(r"\[CUDA (?:Unified Memory )?memcpy")
_MEMSET = "[CUDA memset"
_ROWS_AT_ONCE = 1_000  # of 20 cells each: some 1 MB
_CSV_FIELD_BYTES = 1 << 20  # a mangled name can be long; a field of this length is damage


def claims(path: Path, head: bytes) -> bool:
    """The header, below what nvprof says of the program."""
    return _HEADER.search(head) is not None


def read(path: Path) -> Trace:
    """The device side of a recording."""
    from pinchpoint.importers.assembly.timeline import Timeline
    from pinchpoint.importers.files.memory import TABLE_TIMES, must_fit

    timeline, devices = Timeline(), dict[int, str]()
    with unpacked(path) as plain:
        must_fit(path, plain.stat().st_size, TABLE_TIMES)
        for columns, units in _columns(path, plain, timeline):
            _add(timeline, columns, units, devices)
    if not len(timeline.operations):
        raise UnreadableFile(
            f"{path}: a table of nvprof without an operation of a device",
            hint="record again: nsys profile --export sqlite COMMAND, or pinchpoint run COMMAND",
        )
    source = Source(str(path), FORMAT, path.stat().st_size, recorder="nvprof")
    found = [Device(n, name or None, vendor="nvidia") for n, name in sorted(devices.items())]
    return timeline.trace(source, found)


_Columns = dict[str, Sequence[str]]


def _add(
    timeline: "Timeline", columns: _Columns, units: dict[str, str], devices: dict[int, str]
) -> None:
    """Rows, by column; devices that are new among them are named."""
    none = [""] * len(columns["Start"])
    starts, lasts = (_scaled(columns[c], units[c], _NS) for c in ("Start", "Duration"))
    timed = [s is not None and d is not None for s, d in zip(starts, lasts, strict=True)]
    timeline.unusable += timed.count(False)

    def cells(name: str) -> list[str]:
        return list(compress(columns.get(name, none), timed))

    def numbers(name: str) -> list[int | None]:
        return [*map(_whole, cells(name))]

    def axes(name: str) -> list[str | None]:
        return [_triple(*of) for of in zip(*(cells(f"{name} {a}") for a in "XYZ"), strict=True)]

    kinds = [*map(_kind, cells("Name"))]
    called = [*map(_device, cells("Device"))]
    devices.update(called)
    sizes = _scaled(cells("Size"), units.get("Size", ""), _BYTES)
    ends = [[_ENDS.get(cell) for cell in cells(c)] for c in ("SrcMemType", "DstMemType")]
    timeline.on_devices(
        [*map(_name, cells("Name"))],
        cast(list[int], list(compress(starts, timed))),
        cast(list[int], list(compress(lasts, timed))),
        [number for number, _ in called],
        kinds,
        stream=numbers("Stream"),
        correlation=numbers("Correlation_ID"),
        registers=numbers("Registers Per Thread"),
        grid=axes("Grid"),
        block=axes("Block"),
        bytes=[size if kind else None for size, kind in zip(sizes, kinds, strict=True)],
        from_memory=[m if kind else None for m, kind in zip(ends[0], kinds, strict=True)],
        to_memory=[m if kind else None for m, kind in zip(ends[1], kinds, strict=True)],
    )


def _columns(
    path: Path, plain: Path, timeline: "Timeline"
) -> Iterator[tuple[_Columns, dict[str, str]]]:
    """Some rows at a time by column, and the unit of each."""
    import csv  # every file is asked whether it is such a table

    csv.field_size_limit(_CSV_FIELD_BYTES)
    names: list[str] = []
    units: list[str] = []
    rows: list[list[str]] = []

    def held() -> tuple[_Columns, dict[str, str]]:
        by_column: _Columns = dict(zip(names, zip(*rows, strict=True), strict=True))
        return by_column, dict(zip(names, units, strict=True))

    try:
        with io.TextIOWrapper(plain.open("rb"), "utf-8-sig", "replace", newline="") as file:
            for cells in csv.reader(file):
                if cells[:2] == ["Start", "Duration"] and "Name" in cells:
                    if rows:
                        yield held()
                    names, units, rows = cells, [], []
                elif len(cells) != len(names) or not names:
                    timeline.cut += bool(names) and len(cells) > 1
                elif not units:
                    units = cells
                else:
                    rows.append(cells)
                    if len(rows) == _ROWS_AT_ONCE:
                        yield held()
                        rows = []
    except csv.Error as error:
        raise UnreadableFile(f"{path}: damaged CSV ({error})", hint="copy it again") from None
    if rows:
        yield held()


@lru_cache(1 << 12)
def _name(text: str) -> str:
    """Without the number of the call, which nvprof puts behind it: ``sgemm [135]``."""
    bare, bracket, number = text.rpartition(" [")
    return bare if bracket and number.rstrip("]").isdecimal() else text or "(unnamed)"


@lru_cache(1 << 12)
def _kind(text: str) -> DeviceKind | None:
    if _COPY.match(text):
        return DeviceKind.COPY
    return DeviceKind.MEMSET if text.startswith(_MEMSET) else None


@lru_cache(1 << 8)
def _device(text: str) -> tuple[int, str]:
    found = _NUMBER.search(text.strip())
    return (int(found[1]) if found else 0), _NUMBER.sub("", text).strip()


def _scaled(texts: Sequence[str], unit: str, units: dict[str, float]) -> list[int | None]:
    of = units.get(unit)
    return [None if of is None else _times(text, of) for text in texts]


def _times(text: str, of: float) -> int | None:
    try:
        value = float(text) * of
    except ValueError:
        return None
    return round(value) if abs(value) < 2**61 else None


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


@lru_cache(1 << 12)
def _triple(x: str, y: str, z: str) -> str | None:
    numbers = _whole(x), _whole(y), _whole(z)
    return None if None in numbers else "[{},{},{}]".format(*numbers)
