"""Activity counters of Hopper and newer devices, through NVML's GPM calls.

A figure needs two samples. Samples less than 100 ms apart give 0.0 without an error (12 of 12
reads at 5 ms, 7 of 12 at 50 ms, none at 100 ms, measured on an H100 under a steady load), so an
early read is refused here. One read costs 1.4 ms.
"""

import math
from typing import Any

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
