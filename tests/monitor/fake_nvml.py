# ruff: noqa: N801, N802 - the names are those of pynvml
"""A stand-in for ``pynvml`` whose answers a test chooses: no driver, one H100, MIG, old driver."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

GPM_CONSTANTS = {
    "NVML_GPM_METRIC_SM_UTIL": 2,
    "NVML_GPM_METRIC_SM_OCCUPANCY": 3,
    "NVML_GPM_METRIC_ANY_TENSOR_UTIL": 5,
    "NVML_GPM_METRIC_DRAM_BW_UTIL": 10,
    "NVML_GPM_METRIC_PCIE_TX_PER_SEC": 20,
    "NVML_GPM_METRIC_PCIE_RX_PER_SEC": 21,
    "NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC": 60,
    "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC": 61,
}


class NVMLError(Exception):
    pass


class NVMLError_FunctionNotFound(NVMLError):
    pass


@dataclass
class FakeNvml:
    """One device per entry of ``gpm``; ``fails`` maps a call's name to its error text."""

    devices: int = 1
    fails: dict[str, str] = field(default_factory=dict)
    gpm: dict[int, float] = field(default_factory=dict)  # metric id -> value
    slices: int = 0
    processes: list[Any] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    NVMLError = NVMLError
    NVMLError_FunctionNotFound = NVMLError_FunctionNotFound
    NVML_ERROR_NOT_SUPPORTED = "Not Supported"
    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_PCIE_UTIL_RX_BYTES, NVML_PCIE_UTIL_TX_BYTES = 1, 0
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1
    NVML_VOLATILE_ECC = 0

    def _answer(self, call: str, otherwise: Any) -> Any:
        self.calls.append(call)
        if call in self.fails:
            raise NVMLError(self.fails[call])
        return self.answers.get(call, otherwise)

    def __getattr__(self, name: str) -> Any:
        if name in GPM_CONSTANTS:
            return GPM_CONSTANTS[name]
        if name in DEFAULTS:
            return lambda *args: self._answer(name, DEFAULTS[name])
        raise AttributeError(name)

    def nvmlDeviceGetCount(self) -> int:
        return self.devices

    def nvmlDeviceGetClockInfo(self, handle, kind):
        return self._answer("nvmlDeviceGetClockInfo", {1: 1305, 2: 2619}[kind])

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return self._answer("nvmlDeviceGetComputeRunningProcesses", self.processes)

    def nvmlDeviceGetMigMode(self, handle):
        return self._answer("nvmlDeviceGetMigMode", (1 if self.slices else 0, 0))

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, index):
        if index >= self.slices:
            raise NVMLError("Not Found")
        return f"slice{index}"

    def nvmlGpmQueryDeviceSupport(self, handle):
        supported = self._answer("nvmlGpmQueryDeviceSupport", bool(self.gpm))
        return SimpleNamespace(isSupportedDevice=supported)

    def c_nvmlGpmMetricsGet_t(self):
        return SimpleNamespace(metrics=[SimpleNamespace() for _ in range(98)])

    def nvmlGpmMetricsGet(self, request):
        self._answer("nvmlGpmMetricsGet", None)
        for metric in request.metrics[: request.numMetrics]:
            metric.nvmlReturn = 0 if metric.metricId in self.gpm else 3
            metric.value = self.gpm.get(metric.metricId, 0.0)
        for metric in request.metrics[request.numMetrics :]:
            metric.nvmlReturn, metric.value = 3, 0.0


DEFAULTS: dict[str, Any] = {
    "nvmlInit": None,
    "nvmlShutdown": None,
    "nvmlDeviceGetHandleByIndex": "handle",
    "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetUUID": b"GPU-1",
    "nvmlDeviceGetMaxMigDeviceCount": 7,
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": "handle",
    "nvmlDeviceGetGpuInstanceId": 5,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=100, memory=31),
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=1_781_000_000, total=85_520_809_984),
    "nvmlDeviceGetPowerUsage": 692_000,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetMaxClockInfo": 1980,
    "nvmlDeviceGetTemperature": 62,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4,
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetPcieThroughput": 1024,
    "nvmlDeviceGetTotalEccErrors": 0,
    "nvmlDeviceGetRemappedRows": (0, 0, 0, 0),
    "nvmlGpmSampleAlloc": "buffer",
    "nvmlGpmSampleFree": None,
    "nvmlGpmSampleGet": None,
    "nvmlGpmMigSampleGet": None,
}
