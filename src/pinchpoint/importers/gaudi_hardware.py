"""What engines of an Intel Gaudi did, as Synapse's profiler writes it in CSV (``*_accel0*.csv``).

Two rows an operation and engine, BEGIN and END, in microseconds of the device's clock: a node of
the graph runs on several engines at once (MME, TPC, EDMA), each of which is a stream here. Rows of
single moments and counters stand between them. Nothing of the host is in the file.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.regex import regex
from pinchpoint.trace import Device, DeviceKind, Source, Trace

if TYPE_CHECKING:
    from pinchpoint.importers.assembly.timeline import Timeline

FORMAT = "Gaudi hardware trace"
FILES = ("*_accel0*.csv", "Intel Gaudi: Synapse's profiler (hw), as CSV")
READS: tuple[str, ...] = ("device",)
NOT_READ = "counters (SPMU, BMON), single moments, the host's rows"

_HEADER = b"Name,Trace Source,Engine,Event type,Timestamp[usec]"
_NEEDED = ("Name", "Trace Source", "Engine", "Event type", "Timestamp[usec]")
_NUMBER = regex(r"(\d{1,6})$")
_COPIES, _NETWORK = ("DMA",), ("NIC",)  # within an engine's name: [HD0] TPC 5, PDMA 1, NIC 3
_MOST_OPEN = 100_000  # operations begun on engines of which there are some hundred
_CSV_FIELD_BYTES = 1 << 20  # a longer field is damage


def claims(path: Path, head: bytes) -> bool:
    """The header."""
    return head.removeprefix(b"\xef\xbb\xbf").startswith(_HEADER)


def read(path: Path) -> Trace:
    """Operations of the device's engines."""
    from pinchpoint.importers.assembly.timeline import Timeline

    timeline, numbers = Timeline(), set[int]()
    began: dict[tuple[str, str, str], list[int]] = {}
    engines: dict[tuple[int, str], int] = {}
    for row in _rows(path, timeline):
        if not row["Trace Source"].startswith("HW"):
            continue
        moment = _ns(row["Timestamp[usec]"])
        if moment is None:
            timeline.unusable += 1
            continue
        engine, device = row["Engine"], _device(row.get("Device", ""))
        key = (row.get("Device", ""), engine, row["Name"])
        if row["Event type"] == "BEGIN" and len(began) < _MOST_OPEN:
            began.setdefault(key, []).append(moment)
        elif row["Event type"] == "END":
            if not (held := began.get(key)):
                timeline.unusable += 1  # it began before the recording
                continue
            start = held.pop()
            numbers.add(device)
            stream = engines.setdefault((device, engine), len(engines))
            name = row.get("Operation", "").strip() or row["Name"].strip() or "(unnamed)"
            lasts = moment - start
            timeline.on_device(name, start, lasts, device, _kind(engine), stream=stream)
    timeline.unusable += sum(map(len, began.values()))
    if not len(timeline.operations):
        raise UnreadableFile(
            f"{path}: no operation of an engine that has begun and ended",
            hint="record again, while the device works: HABANA_PROFILE=1 COMMAND",
        )
    source = Source(str(path), FORMAT, path.stat().st_size, recorder="Synapse")
    return timeline.trace(source, [Device(n, "Gaudi", vendor="intel") for n in sorted(numbers)])


def _rows(path: Path, timeline: "Timeline") -> Iterator[dict[str, str]]:
    import csv  # every file is asked whether it is such a table

    csv.field_size_limit(_CSV_FIELD_BYTES)
    with unpacked(path) as plain:
        try:
            with io.TextIOWrapper(plain.open("rb"), "utf-8-sig", "replace", newline="") as file:
                reader = csv.reader(file)
                header = next(reader, [])
                if any(name not in header for name in _NEEDED):
                    raise UnreadableFile(f"{path}: its header is damaged", hint="copy it again")
                for cells in reader:
                    if len(cells) == len(header):
                        yield dict(zip(header, cells, strict=True))
                    else:
                        timeline.cut += bool(cells)
        except csv.Error as error:
            raise UnreadableFile(f"{path}: damaged CSV ({error})", hint="copy it again") from None


def _kind(engine: str) -> DeviceKind | None:
    if any(word in engine for word in _COPIES):
        return DeviceKind.COPY
    return DeviceKind.COLLECTIVE if any(word in engine for word in _NETWORK) else None


def _device(text: str) -> int:
    found = _NUMBER.search(text.strip())
    return int(found[1]) if found else 0


def _ns(text: str) -> int | None:
    """Microseconds with a point, which have more digits than a float holds."""
    whole, _, part = text.strip().partition(".")
    digits = whole + (part or "0")
    if not (digits.isascii() and digits.isdecimal()) or len(whole) > 15:
        return None
    return int(whole or "0") * 1000 + int(part[:3].ljust(3, "0"))
