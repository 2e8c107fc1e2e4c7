"""The CSV that ``nvidia-smi --query-gpu=… --format=csv`` writes.

Units stand in the header (``power.draw [W]``) and, without ``nounits``, behind each value too.
Times are local and name no zone, so only differences of them mean something. Where the year stands
last, month and day are told apart by the shorter log that they make. A logger that was killed
leaves a torn last line.
"""

import re
from datetime import UTC, datetime
from pathlib import Path

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.telemetry._samples import Samples, lines, number, small_number
from pinchpoint.regex import regex
from pinchpoint.trace import Device, Trace

FORMAT = "nvidia-smi CSV"
FILES = (".csv", "nvidia-smi --query-gpu=... --format=csv")
READS: tuple[str, ...] = ("counters",)
NOT_READ = ""

_MIB = 1024.0**2  # bytes
# field of nvidia-smi -> (our name, factor)
_FIELDS: dict[str, tuple[str, float]] = {
    "utilization.gpu": ("any_kernel_ratio", 0.01),
    "utilization.memory": ("memory_time_ratio", 0.01),
    "memory.used": ("memory_used_bytes", _MIB),
    "memory.total": ("memory_total_bytes", _MIB),
    "temperature.gpu": ("temperature_c", 1),
    "temperature.memory": ("memory_temperature_c", 1),
    "power.draw": ("power_w", 1),
    "power.draw.average": ("power_w", 1),
    "power.limit": ("power_limit_w", 1),
    "enforced.power.limit": ("power_limit_w", 1),
    "clocks.current.sm": ("sm_clock_mhz", 1),
    "clocks.sm": ("sm_clock_mhz", 1),
    "clocks.max.sm": ("sm_clock_max_mhz", 1),
    "clocks.current.memory": ("memory_clock_mhz", 1),
    "clocks.mem": ("memory_clock_mhz", 1),
    "clocks_event_reasons.active": ("event_reasons", 1),
    "clocks_throttle_reasons.active": ("event_reasons", 1),
    "pcie.link.gen.current": ("pcie_generation", 1),
    "pcie.link.gen.gpucurrent": ("pcie_generation", 1),
    "pcie.link.gen.max": ("pcie_generation_max", 1),
    "pcie.link.width.current": ("pcie_width", 1),
    "pcie.link.width.max": ("pcie_width_max", 1),
    "ecc.errors.corrected.volatile.total": ("ecc_corrected_count", 1),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected_count", 1),
}
_NUMBERED = ("index", "gpu", "gpu_id", "gpu_index")  # the first is nvidia-smi's, others of scripts
_IDENTITY = (*_NUMBERED, "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial")
_NOT_VALUES = {*_IDENTITY, "timestamp", "name", "gpu_name", "driver_version", "count", "pstate"}
_TIMES = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S")
_YEAR_LAST = regex(r"(\d\d)([-/.])(\d\d)\2(\d{4}) ")  # nvidia-smi of Jetson, and scripts
_ORDERS = ("%m-%d-%Y", "%d-%m-%Y")
_SECONDS = regex(r"\d{9,11}(\.\d{1,9})?")  # 1973 to far ahead
_TITLE = regex(r"\s*([a-z_0-9.]+)\s*(?:\[.*\])?\s*$", re.I)


def claims(path: Path, head: bytes) -> bool:
    """A line of comma-separated nvidia-smi field names, the first but for what a script printed."""
    return any(map(_is_header, head.decode("utf-8-sig", "replace").splitlines()))


def _is_header(line: str) -> bool:
    titles = _titles(line) if "." in line else None
    return titles is not None and any(t in _FIELDS for t in titles)


def read(path: Path) -> Trace:
    """Counters by device, in the names of ``monitor/sample.py``."""
    source = lines(path)
    header = next(filter(_is_header, source), "")
    titles = _titles(header) if header else None
    if titles is None:
        raise UnreadableFile(
            f"{path}: no nvidia-smi field names in the first line",
            hint="record without noheader: nvidia-smi --query-gpu=timestamp,… --format=csv -l 1",
        )
    samples, devices = Samples(path), _Devices(titles, _order_of_dates(path))
    torn = 0
    for line in source:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(titles) or cells == titles:
            torn += bool(line.strip()) and _titles(line) != titles
            continue
        row = dict(zip(titles, cells, strict=True))
        time_ns = devices.time_of(row)
        if time_ns is None:
            torn += 1
            continue
        device = devices.number_of(row)
        for title, cell in row.items():
            if title not in _NOT_VALUES:
                name, factor = _FIELDS.get(title, (title, 1))
                value = number(cell)
                samples.add(time_ns, name, None if value is None else value * factor, device)
    if torn:
        samples.note("telemetry-torn-lines", torn, f"{torn} lines are cut off or hold a message")
    return samples.trace(FORMAT, devices.seen(), recorder="nvidia-smi", truncated=bool(torn))


class _Devices:
    """Numbers of devices and times of rows, from whichever columns the file has."""

    def __init__(self, titles: list[str], dates: str) -> None:
        self._dates = dates
        self._key = next((k for k in _IDENTITY if k in titles), None)
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str | None] = {}
        self._ticks = 0

    def number_of(self, row: dict[str, str]) -> int:
        key = row[self._key] if self._key else "0"
        if key not in self._numbers:
            index = small_number(key) if self._key in _NUMBERED else None
            given = len(self._numbers) if index is None else index
            self._numbers[key] = given
            self._names[given] = row.get("name") or row.get("gpu_name")
        return self._numbers[key]

    def time_of(self, row: dict[str, str]) -> int | None:
        if "timestamp" not in row:
            self._ticks += 1
            return self._ticks
        text = row["timestamp"]
        return _time_ns(_year_first(text, self._dates) if _YEAR_LAST.match(text) else text)

    def seen(self) -> tuple[Device, ...]:
        return tuple(
            Device(number, name, vendor="nvidia") for number, name in sorted(self._names.items())
        )


def _order_of_dates(path: Path) -> str:
    """The order of month and day where the year stands last: a log is of hours, not of months."""
    dates: set[str] = set()
    below_header = False
    for line in lines(path):
        if found := _YEAR_LAST.match(line):
            dates.add("-".join(found.group(1, 3, 4)))
        elif below_header and not dates:
            break  # the first row is of another form, as then all are
        below_header |= _is_header(line)
    spans = {}
    for order in _ORDERS:
        try:
            days = [datetime.strptime(date, order) for date in dates]
        except ValueError:
            continue
        if days:
            spans[order] = max(days) - min(days)
    return min(spans, key=lambda order: spans[order], default=_ORDERS[0])


def _year_first(text: str, order: str) -> str:
    found = _YEAR_LAST.match(text)
    assert found is not None
    try:
        day = datetime.strptime("-".join(found.group(1, 3, 4)), order)
    except ValueError:
        return text
    return f"{day:%Y-%m-%d} {text[found.end() :]}"


def _time_ns(text: str) -> int | None:
    """Since 1970 by the clock that wrote it: nvidia-smi's forms, and what scripts put before its
    values: ISO 8601 (with a zone in UTC), or seconds since 1970."""
    if _SECONDS.fullmatch(text):
        return round(float(text) * 1e6) * 1000  # a float of today's date holds a quarter of a µs
    at = None
    for form in _TIMES:
        try:
            at = datetime.strptime(text, form)
            break
        except ValueError:
            continue
    if at is None:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            return None
    if at.tzinfo is not None:
        at = at.astimezone(UTC).replace(tzinfo=None)
    since = at - datetime(1970, 1, 1)
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000


def _titles(line: str) -> list[str] | None:
    """The field names of a header line, without their units; None if it is no header."""
    matches = [_TITLE.match(part) for part in line.split(",")]
    if not all(matches):
        return None
    return [m[1].lower() for m in matches if m]
