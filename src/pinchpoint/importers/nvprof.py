"""What the device did, as ``nvprof --print-gpu-trace --csv`` wrote it (CUDA 4 to 12).

A row an operation below a line of column names and one of their units. Printed without ``--csv``
a start has five digits behind its point: what began within 10 µs cannot be told apart, so that form
is refused. Of the host nothing is in the file.
"""

import io
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

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
_CSV_FIELD_BYTES = 1 << 20  # a mangled name can be long; a field of this length is damage


def claims(path: Path, head: bytes) -> bool:
    """The header, below what nvprof says of the program."""
    return _HEADER.search(head) is not None


def read(path: Path) -> Trace:
    """The device side of a recording."""
    from pinchpoint.importers.assembly.timeline import Timeline

    timeline, devices = Timeline(), dict[int, str]()
    for names, units, cells in _rows(path, timeline):
        row, unit = dict(zip(names, cells, strict=True)), dict(zip(names, units, strict=True))
        start, lasts = (_scaled(row[c], unit[c], _NS) for c in ("Start", "Duration"))
        if start is None or lasts is None:
            timeline.unusable += 1
            continue
        number, called = _device(row.get("Device", ""))
        devices.setdefault(number, called)
        timeline.on_device(
            _name(row["Name"]), start, lasts, number, _kind(row["Name"]), **_more(row, unit)
        )
    if not len(timeline.operations):
        raise UnreadableFile(
            f"{path}: a table of nvprof without an operation of a device",
            hint="record again: nsys profile --export sqlite COMMAND, or pinchpoint run COMMAND",
        )
    source = Source(str(path), FORMAT, path.stat().st_size, recorder="nvprof")
    found = [Device(n, name or None, vendor="nvidia") for n, name in sorted(devices.items())]
    return timeline.trace(source, found)


def _more(row: dict[str, str], unit: dict[str, str]) -> dict[str, object]:
    source, target = (_ENDS.get(row.get(c, "")) for c in ("SrcMemType", "DstMemType"))
    moves = _kind(row["Name"]) is not None
    return {
        "stream": _whole(row.get("Stream", "")),
        "correlation": _whole(row.get("Correlation_ID", "")),
        "registers": _whole(row.get("Registers Per Thread", "")),
        "grid": _triple([row.get(f"Grid {axis}", "") for axis in "XYZ"]),
        "block": _triple([row.get(f"Block {axis}", "") for axis in "XYZ"]),
        "bytes": _scaled(row.get("Size", ""), unit.get("Size", ""), _BYTES) if moves else None,
        "from_memory": int(source) if moves and source is not None else None,
        "to_memory": int(target) if moves and target is not None else None,
    }


def _rows(
    path: Path, timeline: "Timeline"
) -> Iterator[tuple[Sequence[str], Sequence[str], Sequence[str]]]:
    """The names of the columns, their units, and the cells of each row."""
    import csv  # every file is asked whether it is such a table

    csv.field_size_limit(_CSV_FIELD_BYTES)
    names: list[str] = []
    units: list[str] = []
    with unpacked(path) as plain:
        try:
            with io.TextIOWrapper(plain.open("rb"), "utf-8-sig", "replace", newline="") as file:
                for cells in csv.reader(file):
                    if cells[:2] == ["Start", "Duration"] and "Name" in cells:
                        names, units = cells, []
                    elif len(cells) != len(names) or not names:
                        timeline.cut += bool(names) and len(cells) > 1
                    elif not units:
                        units = cells
                    else:
                        yield names, units, cells
        except csv.Error as error:
            raise UnreadableFile(f"{path}: damaged CSV ({error})", hint="copy it again") from None


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


def _scaled(text: str, unit: str, units: dict[str, float]) -> int | None:
    try:
        value = float(text) * units[unit]
    except (ValueError, KeyError):
        return None
    return round(value) if abs(value) < 2**61 else None


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _triple(texts: list[str]) -> str | None:
    numbers = [_whole(text) for text in texts]
    return None if None in numbers else "[{},{},{}]".format(*numbers)
