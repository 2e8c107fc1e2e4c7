"""The NVML calls we make, what each one gives, and how often it is worth its price.

Prices on an H100 with driver 580 (medians): most calls 1 to 5 µs, process list 27 µs, PCIe
throughput 21 ms (blocks by design), total energy 3.5 ms (therefore not asked).
"""

from collections.abc import Callable
from typing import Any

from pinchpoint.frozen import dataclass

_EACH_SECOND_NS = 1_000_000_000
_KIB = 1024.0


@dataclass(frozen=True)
class Probe:
    """One guarded call: the metrics it gives, in the order of its answer."""

    gives: tuple[str, ...]
    call: Callable[[Any, Any], tuple[float, ...]]
    every_ns: int = 0  # 0: each time we look

    def ask(self, nvml: Any, handle: Any) -> dict[str, float]:
        """The values by name. Raises what NVML raises."""
        return dict(zip(self.gives, self.call(nvml, handle), strict=True))


def _utilization(nvml: Any, handle: Any) -> tuple[float, ...]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return rates.gpu / 100, rates.memory / 100


def _memory(nvml: Any, handle: Any) -> tuple[float, ...]:
    info = nvml.nvmlDeviceGetMemoryInfo(handle)
    return info.used, info.total


def _power(nvml: Any, handle: Any) -> tuple[float, ...]:
    return (nvml.nvmlDeviceGetPowerUsage(handle) / 1000,)


def _power_limit(nvml: Any, handle: Any) -> tuple[float, ...]:
    return (nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,)


def _sm_clock(nvml: Any, handle: Any) -> tuple[float, ...]:
    return (nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),)


def _memory_clock(nvml: Any, handle: Any) -> tuple[float, ...]:
    return (nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),)


def _sm_clock_max(nvml: Any, handle: Any) -> tuple[float, ...]:
    return (nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),)


def _temperature(nvml: Any, handle: Any) -> tuple[float, ...]:
    return (nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),)


def _reasons(nvml: Any, handle: Any) -> tuple[float, ...]:
    newer = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    if newer is not None:
        try:
            return (newer(handle),)
        except nvml.NVMLError_FunctionNotFound:
            pass  # driver before 535: only the old name
    return (nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),)


def _link(nvml: Any, handle: Any) -> tuple[float, ...]:
    generation = nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle)
    return generation, nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)


def _link_max(nvml: Any, handle: Any) -> tuple[float, ...]:
    generation = nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)
    return generation, nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)


def _pcie_rates(nvml: Any, handle: Any) -> tuple[float, ...]:
    received = nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES)
    sent = nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES)
    return received * _KIB, sent * _KIB


def _ecc_corrected(nvml: Any, handle: Any) -> tuple[float, ...]:
    kind = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
    return (nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC),)


def _ecc_uncorrected(nvml: Any, handle: Any) -> tuple[float, ...]:
    kind = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    return (nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC),)


def _remapped(nvml: Any, handle: Any) -> tuple[float, ...]:
    corrected, uncorrected, pending, failed = nvml.nvmlDeviceGetRemappedRows(handle)
    return corrected + uncorrected, pending, failed


FIXED: tuple[Probe, ...] = (
    Probe(("sm_clock_max_mhz",), _sm_clock_max),
    Probe(("pcie_generation_max", "pcie_width_max"), _link_max),
)
"""Asked once."""

PROBES: tuple[Probe, ...] = (
    Probe(("any_kernel_ratio", "memory_time_ratio"), _utilization),
    Probe(("memory_used_bytes", "memory_total_bytes"), _memory),
    Probe(("power_w",), _power),
    Probe(("sm_clock_mhz",), _sm_clock),
    Probe(("memory_clock_mhz",), _memory_clock),
    Probe(("temperature_c",), _temperature),
    Probe(("event_reasons",), _reasons),
    Probe(("power_limit_w",), _power_limit, _EACH_SECOND_NS),
    Probe(("pcie_generation", "pcie_width"), _link),
    Probe(("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s"), _pcie_rates, 2 * _EACH_SECOND_NS),
    Probe(("ecc_corrected_count",), _ecc_corrected, 5 * _EACH_SECOND_NS),
    Probe(("ecc_uncorrected_count",), _ecc_uncorrected, 5 * _EACH_SECOND_NS),
    Probe(("remapped_rows_count", "remap_pending", "remap_failed"), _remapped, 5 * _EACH_SECOND_NS),
)
"""Asked again and again. PCIe rates only where the activity counters do not give them."""
