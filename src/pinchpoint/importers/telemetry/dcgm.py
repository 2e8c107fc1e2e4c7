"""The text that DCGM's exporter serves to Prometheus: one scrape, or several one after another.

Field names are NVIDIA's (``DCGM_FI_DEV_SM_CLOCK``). Exporter 4.9 renamed many of them with DCGM 4.7
and changed units with some: a name then ends in its unit. Blank values are huge sentinels of DCGM,
and unknown here. Series of a MIG slice are kept apart from those of the whole device.
"""

from pathlib import Path

from pinchpoint.importers.telemetry._samples import Samples, lines, number, small_number
from pinchpoint.regex import regex
from pinchpoint.trace import Device, Trace

FORMAT = "DCGM exporter text"
FILES = (".prom .txt", "scrapes of the DCGM exporter")
READS: tuple[str, ...] = ("counters",)
NOT_READ = "fields of other devices than GPUs"

_MIB = 1024.0**2  # bytes
_FIELDS: dict[str, tuple[str, float]] = {
    "DEV_GPU_UTIL": ("any_kernel_ratio", 0.01),
    "DEV_MEM_COPY_UTIL": ("memory_time_ratio", 0.01),
    "DEV_FB_USED": ("memory_used_bytes", _MIB),
    "DEV_FB_TOTAL": ("memory_total_bytes", _MIB),
    "DEV_SM_CLOCK": ("sm_clock_mhz", 1),
    "DEV_MEM_CLOCK": ("memory_clock_mhz", 1),
    "DEV_MAX_SM_CLOCK": ("sm_clock_max_mhz", 1),
    "DEV_GPU_TEMP": ("temperature_c", 1),
    "DEV_MEMORY_TEMP": ("memory_temperature_c", 1),
    "DEV_POWER_USAGE": ("power_w", 1),
    "DEV_POWER_MGMT_LIMIT": ("power_limit_w", 1),
    "DEV_CLOCK_THROTTLE_REASONS": ("event_reasons", 1),
    "DEV_CLOCKS_EVENT_REASONS": ("event_reasons", 1),
    "DEV_PCIE_LINK_GEN": ("pcie_generation", 1),
    "DEV_PCIE_LINK_WIDTH": ("pcie_width", 1),
    "DEV_PCIE_MAX_LINK_GEN": ("pcie_generation_max", 1),
    "DEV_PCIE_MAX_LINK_WIDTH": ("pcie_width_max", 1),
    "DEV_ECC_SBE_VOL_TOTAL": ("ecc_corrected_count", 1),
    "DEV_ECC_DBE_VOL_TOTAL": ("ecc_uncorrected_count", 1),
    "DEV_UNCORRECTABLE_REMAPPED_ROWS": ("remapped_rows_count", 1),
    "DEV_ROW_REMAP_FAILURE": ("remap_failed", 1),
    "DEV_ROW_REMAP_PENDING": ("remap_pending", 1),
    "DEV_XID_ERRORS": ("last_xid", 1),
    "PROF_SM_ACTIVE": ("sm_active_ratio", 1),
    "PROF_SM_OCCUPANCY": ("sm_occupancy_ratio", 1),
    "PROF_PIPE_TENSOR_ACTIVE": ("tensor_active_ratio", 1),
    "PROF_DRAM_ACTIVE": ("dram_active_ratio", 1),
    # DCGM 4.7
    "DEV_FB_USED_BYTES": ("memory_used_bytes", 1),
    "DEV_FB_CAPACITY_BYTES": ("memory_total_bytes", 1),
    "DEV_SM_CLOCK_HERTZ": ("sm_clock_mhz", 1e-6),
    "DEV_MEM_CLOCK_HERTZ": ("memory_clock_mhz", 1e-6),
    "DEV_GPU_TEMP_CELSIUS": ("temperature_c", 1),
    "DEV_MEMORY_TEMP_CELSIUS": ("memory_temperature_c", 1),
    "DEV_BOARD_POWER_WATTS": ("power_w", 1),
    "DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS": ("power_limit_w", 1),
    "DEV_XID_ERROR": ("last_xid", 1),
    "DEV_ROW_REMAP_UNCORRECTABLE_TOTAL": ("remapped_rows_count", 1),
    "DEV_ROW_REMAP_FAILED": ("remap_failed", 1),
    "PROF_SM_UTIL_RATIO": ("sm_active_ratio", 1),
    "PROF_TENSOR_UTIL_RATIO": ("tensor_active_ratio", 1),
    "PROF_DRAM_UTIL_RATIO": ("dram_active_ratio", 1),
}
# Rates only where the exporter declares a gauge; older ones served totals under the same name.
_RATES: dict[str, tuple[str, float]] = {
    "PROF_PCIE_RX_BYTES": ("pcie_rx_bytes_per_s", 1),
    "PROF_PCIE_TX_BYTES": ("pcie_tx_bytes_per_s", 1),
    "PROF_NVLINK_RX_BYTES": ("nvlink_rx_bytes_per_s", 1),
    "PROF_NVLINK_TX_BYTES": ("nvlink_tx_bytes_per_s", 1),
}
# dcgm_structs.h: each type has four blanks, for no value, not found, not supported, not permitted.
_BLANKS = {base + kind for base in (2.0**47, 2.0**31 - 16) for kind in range(4)}
_BLANK_INT64 = 2.0**63 - 2048  # 64-bit blanks, as far as a float tells them apart
_LINE = regex(r"(DCGM_FI_\w+)\{(.*)\}\s+(\S+)(?:\s+(\d{1,15}))?\s*$")
_LABEL = regex(r'(\w+)="((?:[^"\\]|\\.)*)"')


def claims(path: Path, head: bytes) -> bool:
    """Prometheus text with fields of DCGM."""
    return b"DCGM_FI_" in head and (b"# TYPE " in head or b"# HELP " in head or b"{" in head)


def read(path: Path) -> Trace:
    """Counters by device, in the names of ``monitor/sample.py``."""
    samples, scrapes = Samples(path), _Scrapes()
    devices: dict[int, str | None] = {}
    gauges: set[str] = set()
    torn = 0
    for line in map(str.strip, lines(path)):
        if line.startswith("# TYPE DCGM_FI_") and line.endswith(" gauge"):
            gauges.add(line.split()[2])
        if line.startswith("#") or not line.startswith("DCGM_FI_"):
            continue
        match = _LINE.match(line)
        if match is None:
            torn += 1
            continue
        field, labels = match[1], dict(_LABEL.findall(match[2]))
        device = small_number(labels.get("gpu", "0")) or 0
        devices.setdefault(device, labels.get("modelName"))
        name, factor = _ours(field, gauges)
        name += f" of slice {labels['GPU_I_ID']}" if labels.get("GPU_I_ID") else ""
        value = _known(match[3])
        time_ns = scrapes.time_of(field, match[2], match[4])
        samples.add(time_ns, name, None if value is None else value * factor, device)
    if torn:
        samples.note("telemetry-torn-lines", torn, f"{torn} lines are cut off")
    if not scrapes.has_time:
        samples.note("telemetry-without-time", 1, "scrapes have no time: only their order is known")
    known = tuple(Device(n, name, vendor="nvidia") for n, name in sorted(devices.items()))
    return samples.trace(FORMAT, known, recorder="dcgm-exporter", truncated=bool(torn))


class _Scrapes:
    """Times as far as the text has them; a series seen again begins the next scrape."""

    def __init__(self) -> None:
        self.has_time = False
        self._number, self._seen = 0, set[tuple[str, str]]()

    def time_of(self, field: str, labels: str, milliseconds: str | None) -> int:
        if milliseconds is not None:
            self.has_time = True
            return int(milliseconds) * 1_000_000
        if (field, labels) in self._seen:
            self._number += 1
            self._seen.clear()
        self._seen.add((field, labels))
        return self._number


def _ours(field: str, gauges: set[str]) -> tuple[str, float]:
    plain = field.removeprefix("DCGM_FI_")
    if plain in _RATES and field in gauges:
        return _RATES[plain]
    if plain in _FIELDS:
        return _FIELDS[plain]
    base = plain.removesuffix("_RATIO")
    if base != plain and base in _FIELDS:
        return _FIELDS[base][0], 1.0  # the name says that it is a ratio, not a percentage
    return field, 1.0


def _known(text: str) -> float | None:
    value = number(text)
    if value is None or value >= _BLANK_INT64 or value in _BLANKS:
        return None
    return value
