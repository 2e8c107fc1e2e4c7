"""The clock of one NVIDIA device, read in microseconds beside a sample."""

from typing import Any

from pinchpoint.bench.micro.backends.base import ClockState


class ClockWatch:
    """Reads SM clock and event reasons of the device with this UUID; silent where NVML is not.

    NVML numbers devices in its own order, so only the UUID finds the right one.
    """

    def __init__(self, uuid: object) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        if uuid is None:
            return
        try:
            import pynvml

            pynvml.nvmlInit()
            text = str(uuid)
            full = text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}"
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(full)
            self._nvml = pynvml
        except Exception:  # no package, no driver, a container without NVML: no clock is known
            self._nvml = None

    def now(self) -> ClockState | None:
        """The state, or None."""
        if self._nvml is None:
            return None
        return ClockState(
            self._ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM),
            self._ask("nvmlDeviceGetCurrentClocksEventReasons"),
        )

    def _ask(self, name: str, *arguments: object) -> Any:
        try:
            return getattr(self._nvml, name)(self._handle, *arguments)
        except (AttributeError, self._nvml.NVMLError):
            return None
