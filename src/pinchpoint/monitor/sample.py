"""Looks at devices and host: one sample, and again and again from a thread of our own."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
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
