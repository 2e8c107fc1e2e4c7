"""One look at one device or at the host."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol


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
