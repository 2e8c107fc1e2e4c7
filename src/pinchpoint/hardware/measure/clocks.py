"""Clocks, power and what holds them down, through NVML; all None where it is not there."""

from dataclasses import dataclass
from typing import Any

_REASONS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


@dataclass(frozen=True)
class State:
    """One reading."""

    sm_clock_hz: float | None = None
    power_w: float | None = None
    throttled: tuple[str, ...] = ()


class ClockRates:
    """One NVIDIA device as NVML sees it; without NVML every answer is empty.

    ``seen`` is the state at the last ``watch``, which is meant to be called while work runs.
    """

    def __init__(self, bus_id: str | None) -> None:
        self.seen = State()
        self._nvml: Any = None
        self._handle: Any = None
        if bus_id is None:
            return
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())
            self._nvml = pynvml
        except Exception:  # no driver, no library, no permission: the figures go without clocks
            self._nvml = None

    def watch(self) -> None:
        """Note the state now."""
        self.seen = self.state()

    def state(self) -> State:
        """Clock, power and throttling now."""
        if self._nvml is None:
            return State()
        clock = self._ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM)
        power = self._ask("nvmlDeviceGetPowerUsage")
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return State(
            None if clock is None else clock * 1e6,
            None if power is None else power / 1e3,
            tuple(name for bit, name in _REASONS.items() if bits is not None and bits & bit),
        )

    def max_sm_clock_hz(self) -> float | None:
        """The highest clock that the device may run at."""
        if self._nvml is None:
            return None
        clock = self._ask("nvmlDeviceGetMaxClockInfo", self._nvml.NVML_CLOCK_SM)
        return None if clock is None else clock * 1e6

    def facts(self) -> dict[str, Any]:
        """What a fingerprint needs: driver, power limit, highest clocks."""
        if self._nvml is None:
            return {}
        limit = self._ask("nvmlDeviceGetPowerManagementLimit")
        memory = self._ask("nvmlDeviceGetMaxClockInfo", self._nvml.NVML_CLOCK_MEM)
        clock = self.max_sm_clock_hz()
        try:
            driver = self._nvml.nvmlSystemGetDriverVersion()
        except Exception:
            driver = None
        found = {
            "driver": driver.decode() if isinstance(driver, bytes) else driver,
            "power_limit_w": None if limit is None else round(limit / 1e3),
            "max_sm_clock_mhz": None if clock is None else round(clock / 1e6),
            "max_memory_clock_mhz": memory,
        }
        return {k: v for k, v in found.items() if v is not None}

    def _ask(self, question: str, *more: Any) -> int | None:
        try:
            return int(getattr(self._nvml, question)(self._handle, *more))
        except Exception:  # not supported on this device, or by this driver
            return None
