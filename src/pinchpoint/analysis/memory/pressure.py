"""Whether memory is short: only then does it matter what a healthy program needs it for."""

from dataclasses import dataclass

from pinchpoint.analysis.memory.failures import Failure, failures
from pinchpoint.analysis.memory.history import History
from pinchpoint.analysis.memory.waste import retries
from pinchpoint.trace import Trace

MATERIAL_PEAK_RATIO = 0.03  # of the peak: less is not worth a change
MATERIAL_DEVICE_RATIO = 0.01  # of the device, where only a trace without memory events is there
NEARLY_FULL_RATIO = 0.9  # of the device: the next longer batch or fragmentation ends the run


@dataclass(frozen=True)
class Pressure:
    """Why memory is short, or that nothing says so."""

    failure: Failure | None
    retries: int
    full_ratio: float | None  # peak of reserved over the device's memory, where that is known

    @property
    def short(self) -> bool:
        """Whether there is any sign of it."""
        full = self.full_ratio is not None and self.full_ratio >= NEARLY_FULL_RATIO
        return self.failure is not None or self.retries > 0 or full

    @property
    def sentence(self) -> str:
        """The strongest sign."""
        if self.failure is not None:
            return "a request failed"
        if self.retries:
            return f"the allocator gave memory back and asked again {self.retries} times"
        return f"{self.full_ratio or 0:.0%} of the device is reserved"


def pressure(trace: Trace, history: History) -> Pressure:
    """The signs of one device."""
    failed = failures(history)
    capacity = next((d.memory_bytes for d in trace.devices if d.number == history.device), None)
    reserved = history.replay.peak("reserved").bytes
    return Pressure(
        failure=failed[-1] if failed else None,
        retries=sum(r.served for r in retries(history)),
        full_ratio=reserved / capacity if capacity else None,
    )
