"""The columns that ``nvidia-smi dmon`` prints, plain or as CSV.

Two header lines (names, units) stand above the rows and come again every few dozen rows. Columns
depend on ``-s``, ``-o`` and the driver. Without ``-o T`` or ``-o DT`` the rows have no time.
"""

import re
from datetime import datetime
from pathlib import Path

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.telemetry._samples import Samples, lines, number, small_number
from pinchpoint.regex import regex
from pinchpoint.trace import Device, Trace

FORMAT = "nvidia-smi dmon"
FILES = (".log .txt", "nvidia-smi dmon")
READS: tuple[str, ...] = ("counters",)
NOT_READ = ""

_MIB, _MB = 1024.0**2, 1e6  # bytes
_DAY_NS = 86_400 * 10**9  # rows with the time of day alone
_EPOCH = 719_163  # ordinal of 1970-01-01
_FIELDS: dict[str, tuple[str, float]] = {
    "pwr": ("power_w", 1),
    "gtemp": ("temperature_c", 1),
    "temp": ("temperature_c", 1),
    "mtemp": ("memory_temperature_c", 1),
    "sm": ("any_kernel_ratio", 0.01),  # despite its name: time with any kernel
    "mem": ("memory_time_ratio", 0.01),
    "mclk": ("memory_clock_mhz", 1),
    "pclk": ("sm_clock_mhz", 1),
    "pviol": ("power_capped_ratio", 0.01),
    "tviol": ("thermal_slowdown_ratio", 1),
    "fb": ("memory_used_bytes", _MIB),
    "rxpci": ("pcie_rx_bytes_per_s", _MB),
    "txpci": ("pcie_tx_bytes_per_s", _MB),
    "sbecc": ("ecc_corrected_count", 1),
    "dbecc": ("ecc_uncorrected_count", 1),
    "smutil": ("sm_active_ratio", 0.01),
    "smocc": ("sm_occupancy_ratio", 0.01),
    "mmaact": ("tensor_active_ratio", 0.01),
    "dram": ("dram_active_ratio", 0.01),
    "pcitx": ("pcie_tx_bytes_per_s", _MIB),
    "pcirx": ("pcie_rx_bytes_per_s", _MIB),
    "nvlrx": ("nvlink_rx_bytes_per_s", _MIB),
    "nvltx": ("nvlink_tx_bytes_per_s", _MIB),
}
_HEADER = regex(r"#\s*(?:date[,\s]+)?(?:time[,\s]+)?gpu[,\s]", re.I)


def claims(path: Path, head: bytes) -> bool:
    """A first line such as ``# gpu   pwr  gtemp …``, with or without date and time."""
    first = head.decode("utf-8", "replace").lstrip().partition("\n")[0]
    return bool(_HEADER.match(first)) and bool(set(_names(first)) & set(_FIELDS))


def read(path: Path) -> Trace:
    """Counters by device, in the names of ``monitor/sample.py``."""
    samples, clock, seen = Samples(path), _Clock(), set[int]()
    names: list[str] = []
    torn = 0
    for line in lines(path):
        if line.lstrip().startswith("#"):
            names = _names(line) if _HEADER.match(line.strip()) else names
            continue
        cells = _cells(line)
        if not cells:
            continue
        row = dict(zip(names, cells, strict=False))
        device = small_number(row.get("gpu", ""))
        if len(cells) != len(names) or device is None:
            torn += 1
            continue
        time_ns = clock.read(row, device)
        seen.add(device)
        for name in names:
            if name not in ("gpu", "date", "time"):
                ours, factor = _FIELDS.get(name, (name, 1))
                value = number(row[name])
                samples.add(time_ns, ours, None if value is None else value * factor, device)
    if not names:
        raise UnreadableFile(f"{path}: no header of nvidia-smi dmon", hint="record it again")
    if torn:
        samples.note("telemetry-torn-lines", torn, f"{torn} lines are cut off or hold a message")
    if not clock.has_time:
        samples.note("telemetry-without-time", 1, "rows have no time: only their order is known")
    devices = tuple(Device(number, vendor="nvidia") for number in sorted(seen))
    return samples.trace(FORMAT, devices, recorder="nvidia-smi dmon", truncated=bool(torn))


class _Clock:
    """Times of rows: date and time, time of day (which wraps at midnight), or mere order."""

    def __init__(self) -> None:
        self.has_time = False
        self._last_ns = 0
        self._ticks: dict[int, int] = {}

    def read(self, row: dict[str, str], device: int) -> int:
        try:
            at = datetime.strptime(row["time"], "%H:%M:%S")
            day = (
                datetime.strptime(row["date"], "%Y%m%d").toordinal() - _EPOCH
                if "date" in row
                else 0
            )
        except (KeyError, ValueError):
            self._ticks[device] = self._ticks.get(device, 0) + 1
            return self._ticks[device]
        self.has_time = True
        seconds = (at.hour * 60 + at.minute) * 60 + at.second
        time_ns = day * _DAY_NS + seconds * 10**9
        if "date" not in row:
            while time_ns < self._last_ns - _DAY_NS // 2:
                time_ns += _DAY_NS
        self._last_ns = max(self._last_ns, time_ns)
        return time_ns


def _names(header: str) -> list[str]:
    """``#Time gpu pwr`` or ``# gpu, pwr``: names without the hash."""
    return [name.lower() for name in _cells(header.strip().lstrip("#"))]


def _cells(line: str) -> list[str]:
    parts = line.split(",") if "," in line else line.split()
    return [part.strip() for part in parts if part.strip()]
