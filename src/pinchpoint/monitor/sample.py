"""Looks at devices and host: one sample, and again and again from a thread of our own."""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from pinchpoint.frozen import dataclass
from pinchpoint.replacing import replacing


@dataclass(frozen=True)
class Sample:
    """Values by name of ``metrics.py``; what is not known is not there.

    ``device`` is the device's number as text (``1``, or ``1/0`` for a MIG slice); None is the host.
    """

    unix_ns: int
    device: str | None
    values: Mapping[str, float]


@dataclass(frozen=True)
class DeviceProcess:
    """A process with a context on a device."""

    device: str
    pid: int
    memory_bytes: int | None  # None: the driver does not say (WSL, MIG, containers)


@dataclass(frozen=True)
class DeviceFacts:
    """What does not change while we look."""

    device: str
    name: str
    uuid: str | None = None
    mig: bool = False


@dataclass
class Missing:
    """Why a device does not tell something: reason by (device, metric), newest reason wins."""

    reasons: dict[tuple[str | None, str], str] = field(default_factory=dict)

    def note(self, device: str | None, names: tuple[str, ...], reason: str) -> None:
        """These metrics of the device are not available, because."""
        self.reasons |= dict.fromkeys(((device, name) for name in names), reason)

    def of(self, device: str | None) -> Mapping[str, str]:
        """Reasons for one device, by metric."""
        return MappingProxyType({m: why for (d, m), why in self.reasons.items() if d == device})


class Source(Protocol):
    """Something that can be looked at again and again."""

    missing: Missing

    def read(self, unix_ns: int) -> list[Sample]:
        """Look now."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


CALM_INTERVAL_S = 1.0  # so that the log of a day stays readable
SHORTEST_S = 0.1  # activity counters answer 0.0 when read faster; see gpm.py

Sink = Callable[[list[Sample]], None]


class Sampler:
    """A thread that calls ``sink`` with the samples of each tick, from ``start`` to ``stop``."""

    def __init__(
        self,
        sources: Sequence[Source],
        interval_s: float,
        sink: Sink,
        *,
        calm_after_s: float = float("inf"),
    ) -> None:
        """After ``calm_after_s`` a look is taken only each second, to keep long logs small."""
        self._sources, self._sink = sources, sink
        self.interval_s = max(interval_s, SHORTEST_S)
        self._calm_after_s = calm_after_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pinchpoint-sampler", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Take a last look, wait for the thread and close the sources."""
        self._stop.set()
        self._thread.join()
        for source in self._sources:
            source.close()

    def _run(self) -> None:
        start_s = next_s = time.monotonic()
        while True:
            self._sink(look(self._sources))
            calm = time.monotonic() - start_s > self._calm_after_s
            interval_s = max(self.interval_s, CALM_INTERVAL_S) if calm else self.interval_s
            next_s = max(next_s + interval_s, time.monotonic())
            if self._stop.wait(next_s - time.monotonic()):
                return


def look(sources: Sequence[Source]) -> list[Sample]:
    """One sample of everything, at the same time of day."""
    unix_ns = time.time_ns()
    return [sample for source in sources for sample in source.read(unix_ns)]


# ------------------------------------------------------------------------------------------------
# Processes on a device: whose they are, and what they are called.


def others(
    running: Sequence[DeviceProcess], own_pids: Collection[int]
) -> tuple[DeviceProcess, ...] | None:
    """Processes that are not ours; None if the driver's numbers mean nothing here.

    In a container the driver may use the host's process numbers. Then none of ours is in the list,
    and nobody can say which entries are foreign.
    """
    if not running:
        return ()
    foreign = tuple(p for p in running if p.pid not in own_pids)
    return None if own_pids and len(foreign) == len(running) else foreign


def process_name(pid: int) -> str | None:
    """The program's name, None if the process is gone or hidden (another namespace or user)."""
    import psutil  # takes a while to import, and reading a recording needs none of it

    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return None


# ------------------------------------------------------------------------------------------------
# What can be sampled: the one list of names that sampler, logs, importers and views share.
#
# A name carries its unit. Ratios run from 0 to 1. What a device does not tell is left out, never
# 0.


@dataclass(frozen=True)
class Metric:
    """A sampled quantity: short label, unit and what it really means."""

    label: str
    unit: str
    meaning: str


DEVICE_METRICS: dict[str, Metric] = {
    "sm_active_ratio": Metric(
        "SM active", "ratio", "share of multiprocessors with at least one warp, averaged over time"
    ),
    "tensor_active_ratio": Metric(
        "tensor active", "ratio", "share of cycles in which the matrix units worked"
    ),
    "dram_active_ratio": Metric(
        "DRAM active", "ratio", "memory bandwidth used, of the theoretical maximum"
    ),
    "sm_occupancy_ratio": Metric("occupancy", "ratio", "warps resident, of what would fit"),
    "any_kernel_ratio": Metric(
        "time with any kernel", "ratio", "time in which at least one kernel ran, however small"
    ),
    "memory_time_ratio": Metric(
        "time with memory traffic", "ratio", "time in which device memory was used; not bandwidth"
    ),
    "memory_used_bytes": Metric("memory", "bytes", "device memory held by all processes"),
    "memory_total_bytes": Metric("memory in total", "bytes", "device memory there is"),
    "power_w": Metric("power", "W", "power drawn"),
    "power_limit_w": Metric("power limit", "W", "power at which clocks are lowered"),
    "sm_clock_mhz": Metric("SM clock", "MHz", "present clock of the multiprocessors"),
    "sm_clock_max_mhz": Metric("highest SM clock", "MHz", "clock the device can reach"),
    "memory_clock_mhz": Metric("memory clock", "MHz", "present clock of the device memory"),
    "temperature_c": Metric("temperature", "°C", "temperature of the chip"),
    "memory_temperature_c": Metric("memory temperature", "°C", "temperature of device memory"),
    "event_reasons": Metric("clock reasons", "bits", "why the clock is where it is; reasons.py"),
    "pcie_rx_bytes_per_s": Metric("PCIe in", "bytes/s", "host to device traffic"),
    "pcie_tx_bytes_per_s": Metric("PCIe out", "bytes/s", "device to host traffic"),
    "pcie_generation": Metric("PCIe generation", "", "present; links idle lower"),
    "pcie_generation_max": Metric("highest PCIe generation", "", "what device and slot can do"),
    "pcie_width": Metric("PCIe lanes", "", "present"),
    "pcie_width_max": Metric("most PCIe lanes", "", "what device and slot can do"),
    "nvlink_rx_bytes_per_s": Metric("NVLink in", "bytes/s", "traffic from other devices"),
    "nvlink_tx_bytes_per_s": Metric("NVLink out", "bytes/s", "traffic to other devices"),
    "process_count": Metric("processes", "", "processes with a context on the device"),
    "other_process_count": Metric("other processes", "", "those that are not part of this run"),
    "other_memory_bytes": Metric("memory of others", "bytes", "held by processes not of this run"),
    "ecc_corrected_count": Metric("corrected memory errors", "", "since the driver was loaded"),
    "ecc_uncorrected_count": Metric("uncorrected memory errors", "", "since the driver was loaded"),
    "remapped_rows_count": Metric("remapped memory rows", "", "after uncorrectable errors"),
    "remap_pending": Metric("row remap pending", "", "1: takes effect at the next reset"),
    "remap_failed": Metric("row remap failed", "", "1: the device should be replaced"),
}

HOST_METRICS: dict[str, Metric] = {
    "cpu_ratio": Metric("CPU", "ratio", "use of all cores of the machine"),
    "cpu_cores_used": Metric(
        "cores used by the run", "cores", "CPU time a second, run's processes"
    ),
    "runnable_count": Metric("runnable threads", "", "threads of the machine that run or wait to"),
    "context_switches_per_s": Metric("context switches", "1/s", "of the whole machine"),
    "cpu_pressure_ratio": Metric("CPU pressure", "ratio", "time in which a task waited for a core"),
    "cgroup_throttled_ratio": Metric("CPU quota", "ratio", "time the control group was stopped"),
    "host_memory_used_bytes": Metric("host memory", "bytes", "in use"),
    "host_memory_total_bytes": Metric("host memory in total", "bytes", "or the group's limit"),
    "swap_used_bytes": Metric("swap", "bytes", "in use"),
    "run_memory_bytes": Metric("memory of the run", "bytes", "resident, processes of the run"),
    "disk_read_bytes_per_s": Metric("disk read", "bytes/s", "of the whole machine"),
    "disk_reads_per_s": Metric("disk reads", "1/s", "of the whole machine"),
}

METRICS: dict[str, Metric] = DEVICE_METRICS | HOST_METRICS

LOGGED_METRICS: dict[str, Metric] = {
    "power_capped_ratio": Metric("power-capped", "ratio", "time in which power held it down"),
    "thermal_slowdown_ratio": Metric("slowed for heat", "ratio", "time in which heat did"),
}
"""What logs of other tools have and we do not sample."""

KNOWN_METRICS: dict[str, Metric] = METRICS | LOGGED_METRICS


# ------------------------------------------------------------------------------------------------
# A text file for Prometheus' node exporter (textfile collector): the newest look at everything.


def exposition(samples: Sequence[Sample], names: Mapping[str, str]) -> str:
    """The samples as gauges ``pinchpoint_<metric>``; ``names`` are devices by number."""
    lines = []
    for metric, about in METRICS.items():
        known = [(s.device, s.values[metric]) for s in samples if metric in s.values]
        if not known:
            continue
        lines.append(f"# HELP pinchpoint_{metric} {about.label}: {about.meaning}")
        lines.append(f"# TYPE pinchpoint_{metric} gauge")
        for device, value in known:
            lines.append(f"pinchpoint_{metric}{_labels(device, names)} {value:.10g}")
    return "\n".join(lines) + "\n"


def write_textfile(path: Path, text: str) -> None:
    """Replace the file at once, as the collector may read it at any moment. Raises OSError."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def _labels(device: str | None, names: Mapping[str, str]) -> str:
    if device is None:
        return ""
    name = names.get(device, "").replace("\\", "\\\\").replace('"', '\\"')
    return f'{{device="{device}",name="{name}"}}'
