"""NVIDIA devices through NVML: stable calls only, each one guarded and timed.

A call that fails makes its metrics unknown, with the driver's reason; a call that is slow three
times is not made again, because slow calls hold a lock that the user's own launches need.
"""

import math
import time
from collections.abc import Callable, Collection
from dataclasses import field
from importlib import import_module
from typing import Any

from pinchpoint.frozen import dataclass
from pinchpoint.monitor.nvml_probes import FIXED, PROBES, Probe
from pinchpoint.monitor.sample import DeviceFacts, DeviceProcess, Missing, Sample, others

# ------------------------------------------------------------------------------------------------
# Activity counters of Hopper and newer devices, through NVML's GPM calls.
#
# A figure needs two samples. Samples less than 100 ms apart give 0.0 without an error (12 of 12
# reads at 5 ms, 7 of 12 at 50 ms, none at 100 ms, measured on an H100 under a steady load), so an
# early read is refused here. One read costs 1.4 ms.


SHORTEST_NS = 100_000_000

_MIB = 1024.0**2
# our name -> (NVML constant, factor from its unit to ours); percent and MiB/s in nvml.h
FIELDS: dict[str, tuple[str, float]] = {
    "sm_active_ratio": ("NVML_GPM_METRIC_SM_UTIL", 0.01),
    "sm_occupancy_ratio": ("NVML_GPM_METRIC_SM_OCCUPANCY", 0.01),
    "tensor_active_ratio": ("NVML_GPM_METRIC_ANY_TENSOR_UTIL", 0.01),
    "dram_active_ratio": ("NVML_GPM_METRIC_DRAM_BW_UTIL", 0.01),
    "pcie_rx_bytes_per_s": ("NVML_GPM_METRIC_PCIE_RX_PER_SEC", _MIB),
    "pcie_tx_bytes_per_s": ("NVML_GPM_METRIC_PCIE_TX_PER_SEC", _MIB),
    "nvlink_rx_bytes_per_s": ("NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", _MIB),
    "nvlink_tx_bytes_per_s": ("NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", _MIB),
}


class Gpm:
    """Keeps the last sample of one device (or MIG slice) and the buffers for two."""

    def __init__(self, nvml: Any, handle: Any, slice_id: int | None = None) -> None:
        """Raises the NVML error if the device has no such counters."""
        if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        self._nvml, self._handle, self._slice = nvml, handle, slice_id
        self._last, self._next = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        self._last_ns: int | None = None

    def read(self, now_ns: int) -> dict[str, float]:
        """Means since the last read; nothing at the first read and less than 100 ms after one."""
        if self._last_ns is not None and now_ns - self._last_ns < SHORTEST_NS:
            return {}
        self._take(self._next)
        first = self._last_ns is None
        values = {} if first else self._between(self._last, self._next)
        self._last, self._next, self._last_ns = self._next, self._last, now_ns
        return values

    def close(self) -> None:
        """Free the buffers."""
        for buffer in (self._last, self._next):
            self._nvml.nvmlGpmSampleFree(buffer)

    def _take(self, buffer: Any) -> None:
        if self._slice is None:
            self._nvml.nvmlGpmSampleGet(self._handle, buffer)
        else:
            self._nvml.nvmlGpmMigSampleGet(self._handle, self._slice, buffer)

    def _between(self, first: Any, second: Any) -> dict[str, float]:
        nvml = self._nvml
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.sample1, request.sample2 = first, second
        request.numMetrics = len(FIELDS)
        for i, (constant, _) in enumerate(FIELDS.values()):
            request.metrics[i].metricId = getattr(nvml, constant)
        nvml.nvmlGpmMetricsGet(request)
        return {
            name: metric.value * factor
            for (name, (_, factor)), metric in zip(FIELDS.items(), request.metrics, strict=False)
            if metric.nvmlReturn == 0 and math.isfinite(metric.value)
        }


# ------------------------------------------------------------------------------------------------
# NVIDIA devices through NVML: stable calls only, each one guarded and timed.


CALL_LIMIT_NS = 100_000_000  # PCIe throughput, the slowest we make, blocks 2 x 21 ms by design
SLOW_CALLS = 3  # one slow answer is chance; then the metric is no longer asked for
_PROCESSES_EVERY_NS = 1_000_000_000  # reads the process table; processes come seldom


class NoDevices(Exception):
    """There is no NVIDIA device to look at; ``str()`` is the reason in one sentence."""


@dataclass
class _Device:
    facts: DeviceFacts
    handle: Any
    gpm: Gpm | None = None
    fixed: dict[str, float] = field(default_factory=dict)
    due_ns: dict[Probe, int] = field(default_factory=dict)
    last: dict[Probe, dict[str, float]] = field(default_factory=dict)
    slow: dict[Probe, int] = field(default_factory=dict)
    dropped: set[Probe] = field(default_factory=set)


class NvmlSource:
    """All devices of the machine, or those in ``only`` (numbers as text)."""

    def __init__(
        self,
        nvml: Any = None,
        *,
        only: frozenset[str] | None = None,
        counters: bool = True,
        own_pids: Callable[[], Collection[int]] = frozenset,
    ) -> None:
        """Raises NoDevices.

        ``counters`` False leaves the GPM calls out; ``own_pids`` gives the processes of the run.
        """
        self._nvml = _start(nvml)
        self._own_pids = own_pids
        self._processes_due_ns = 0
        self._process_counts: dict[str, dict[str, float]] = {}
        self._without_processes: set[str] = set()
        self.missing = Missing()
        self._devices = [
            d for d in self._find() if only is None or d.facts.device.split("/")[0] in only
        ]
        if not self._devices:
            raise NoDevices("the driver is there, and shows no device")
        for device in self._devices:
            self._prepare(device, counters)

    @property
    def devices(self) -> tuple[DeviceFacts, ...]:
        """What the devices are."""
        return tuple(d.facts for d in self._devices)

    def read(self, unix_ns: int) -> list[Sample]:
        """One sample a device; slow metrics keep their last value until they are due."""
        if unix_ns >= self._processes_due_ns:
            self._processes_due_ns = unix_ns + _PROCESSES_EVERY_NS
            self._process_counts = self._count_processes()
        return [self._read(device, unix_ns) for device in self._devices]

    def processes(self) -> list[DeviceProcess]:
        """Processes with a compute context; costs 30 µs a device."""
        found = []
        for device in self._devices:
            try:
                running = self._nvml.nvmlDeviceGetComputeRunningProcesses(device.handle)
            except self._nvml.NVMLError as error:
                self.missing.note(device.facts.device, ("process_count",), str(error))
                self._without_processes.add(device.facts.device)
                continue
            found += [
                DeviceProcess(device.facts.device, int(p.pid), _bytes_of(p.usedGpuMemory))
                for p in running
            ]
        return found

    def close(self) -> None:
        """Free buffers and let the library go."""
        for device in self._devices:
            if device.gpm:
                device.gpm.close()
        self._nvml.nvmlShutdown()

    def _count_processes(self) -> dict[str, dict[str, float]]:
        running = self.processes()  # first, so that none of them is younger than our own list
        own = self._own_pids()
        counts: dict[str, dict[str, float]] = {}
        for number in {d.facts.device for d in self._devices} - self._without_processes:
            here = [p for p in running if p.device == number]
            counts[number] = {"process_count": len(here)}
            foreign = others(here, own)
            if foreign is not None:
                counts[number]["other_process_count"] = len(foreign)
                sizes = [p.memory_bytes for p in foreign]
                if None not in sizes:
                    counts[number]["other_memory_bytes"] = sum(s for s in sizes if s)
        return counts

    def _find(self) -> list[_Device]:
        nvml, found = self._nvml, []
        for number in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(number)
            except nvml.NVMLError as error:
                self.missing.note(str(number), ("device",), str(error))
                continue
            slices = _mig_slices(nvml, handle)
            facts = DeviceFacts(
                str(number), _name(nvml, handle), _uuid(nvml, handle), mig=bool(slices)
            )
            found.append(_Device(facts, handle))
            found += [
                _Device(DeviceFacts(f"{number}/{i}", _name(nvml, s), _uuid(nvml, s), mig=True), s)
                for i, s in enumerate(slices)
            ]
        return found

    def _prepare(self, device: _Device, counters: bool) -> None:
        for probe in FIXED:
            device.fixed |= self._ask(device, probe)
        if not counters:
            self.missing.note(device.facts.device, tuple(FIELDS), "not asked for")
            return
        try:
            device.gpm = self._gpm(device)
        except (self._nvml.NVMLError, AttributeError) as error:
            reason = f"no activity counters on this device or driver ({error})"
            self.missing.note(device.facts.device, tuple(FIELDS), reason)

    def _gpm(self, device: _Device) -> Gpm:
        nvml = self._nvml
        if "/" not in device.facts.device:
            return Gpm(nvml, device.handle)
        parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device.handle)
        return Gpm(nvml, parent, nvml.nvmlDeviceGetGpuInstanceId(device.handle))

    def _read(self, device: _Device, unix_ns: int) -> Sample:
        values = device.fixed | self._process_counts.get(device.facts.device, {})
        for probe in PROBES:
            if device.gpm and set(probe.gives) <= set(FIELDS):
                continue
            if unix_ns >= device.due_ns.get(probe, 0):
                device.due_ns[probe] = unix_ns + probe.every_ns
                device.last[probe] = self._ask(device, probe)
            values |= device.last[probe]
        if device.gpm:
            try:
                values |= device.gpm.read(unix_ns)
            except self._nvml.NVMLError as error:
                self.missing.note(device.facts.device, tuple(FIELDS), str(error))
        return Sample(unix_ns, device.facts.device, values)

    def _ask(self, device: _Device, probe: Probe) -> dict[str, float]:
        if probe in device.dropped:
            return {}
        start_ns = time.perf_counter_ns()
        try:
            answers = probe.ask(self._nvml, device.handle)
        except (self._nvml.NVMLError, AttributeError) as error:
            self.missing.note(device.facts.device, probe.gives, str(error))
            answers = {}
        if time.perf_counter_ns() - start_ns > CALL_LIMIT_NS:
            self._was_slow(device, probe)
        return answers

    def _was_slow(self, device: _Device, probe: Probe) -> None:
        device.slow[probe] = device.slow.get(probe, 0) + 1
        if device.slow[probe] >= SLOW_CALLS:
            device.dropped.add(probe)
            reason = f"the driver takes more than {CALL_LIMIT_NS // 1_000_000} ms to answer"
            self.missing.note(device.facts.device, probe.gives, reason)


def _start(given: Any) -> Any:
    nvml = given
    if nvml is None:
        try:
            nvml = import_module("pynvml")
        except ImportError:
            raise NoDevices("the package nvidia-ml-py is not installed") from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NoDevices(_why_no_start(str(error))) from None
    return nvml


def _why_no_start(error: str) -> str:
    known = {
        "NVML Shared Library Not Found": "no NVIDIA driver is installed here",
        "Driver Not Loaded": "the NVIDIA driver is installed and not loaded",
        "RM has detected an NVML/RM version mismatch.": "the NVIDIA driver was updated and not "
        "reloaded; restart the machine or reload its modules",
        "Insufficient Permissions": "this user may not talk to the NVIDIA driver",
    }
    return known.get(error, f"the NVIDIA driver answers: {error}")


def _mig_slices(nvml: Any, handle: Any) -> list[Any]:
    try:
        if nvml.nvmlDeviceGetMigMode(handle)[0] != 1:
            return []
        most = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except nvml.NVMLError:
        return []
    slices = []
    for i in range(most):
        try:
            slices.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, i))
        except nvml.NVMLError:
            continue
    return slices


def _name(nvml: Any, handle: Any) -> str:
    try:
        return _text(nvml.nvmlDeviceGetName(handle))
    except nvml.NVMLError:
        return "NVIDIA device"


def _uuid(nvml: Any, handle: Any) -> str | None:
    try:
        return _text(nvml.nvmlDeviceGetUUID(handle))
    except nvml.NVMLError:
        return None


def _text(name: str | bytes) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def _bytes_of(used: int | None) -> int | None:
    return None if used is None or used >= 1 << 62 else int(used)
