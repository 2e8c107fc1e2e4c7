"""The newest look at everything with its recent history: what a live view and ``--once`` show."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from pinchpoint.monitor import reasons
from pinchpoint.monitor.host import HostSource
from pinchpoint.monitor.nvml import NoDevices, NvmlSource
from pinchpoint.monitor.sample import (
    METRICS,
    DeviceFacts,
    DeviceProcess,
    Sample,
    Source,
    look,
    process_name,
)
from pinchpoint.monitor.sentences import Stretch, device_sentences, host_sentences

SCHEMA = "pinchpoint.monitor/1"
HISTORY_S = 60


class Board:
    """All sources and a minute of their samples. ``no_devices`` says why there are none."""

    def __init__(
        self,
        *,
        interval_s: float,
        only: frozenset[str] | None = None,
        counters: bool = True,
        nvml: Any = None,
    ) -> None:
        self._devices: NvmlSource | None = None
        self.no_devices: str | None = None
        try:
            self._devices = NvmlSource(nvml, only=only, counters=counters)
        except NoDevices as why:
            self.no_devices = str(why)
        self._host = HostSource()
        self._length = max(int(HISTORY_S / interval_s), 2)
        self._history: dict[str | None, deque[Sample]] = {}

    @property
    def devices(self) -> tuple[DeviceFacts, ...]:
        """What there is to look at, besides the host."""
        return self._devices.devices if self._devices else ()

    @property
    def names(self) -> Mapping[str, str]:
        """Names of the devices by number."""
        return {device.device: device.name for device in self.devices}

    def refresh(self) -> list[Sample]:
        """Look now; returns the new samples."""
        sources: list[Source] = [self._host]
        if self._devices is not None:
            sources.insert(0, self._devices)
        samples = look(sources)
        for sample in samples:
            kept = self._history.setdefault(sample.device, deque(maxlen=self._length))
            kept.append(sample)
        return samples

    def history(self, device: str | None, metric: str) -> list[float | None]:
        """Values of the last minute, oldest first; None where a look did not give one."""
        return [sample.values.get(metric) for sample in self._history.get(device, ())]

    def latest(self, device: str | None) -> Mapping[str, float]:
        """The newest value of each metric."""
        kept = self._history.get(device)
        return kept[-1].values if kept else {}

    def missing(self, device: str | None) -> Mapping[str, str]:
        """Metrics that the device does not give, with the reason."""
        source = self._host if device is None else self._devices
        return source.missing.of(device) if source else {}

    def processes(self) -> Sequence[DeviceProcess]:
        """Processes on the devices now."""
        return self._devices.processes() if self._devices else ()

    def sentences(self, device: str | None) -> tuple[str, ...]:
        """What the last minute means."""
        kept = list(self._history.get(device, ()))
        seconds = (kept[-1].unix_ns - kept[0].unix_ns) / 1e9 if len(kept) > 1 else 0.0
        stretch = Stretch(kept, _called(seconds))
        return host_sentences(stretch) if device is None else device_sentences(stretch)

    def document(self) -> dict[str, Any]:
        """Everything as one JSON document; unknown values are null, with the reason."""
        processes = self.processes()
        return {
            "schema": SCHEMA,
            "unix_ns": max((k[-1].unix_ns for k in self._history.values()), default=None),
            "no_devices": self.no_devices,
            "devices": [self._device(facts, processes) for facts in self.devices],
            "host": {
                "values": dict(self.latest(None)),
                "sentences": list(self.sentences(None)),
            },
        }

    def close(self) -> None:
        """Let the driver go."""
        if self._devices is not None:
            self._devices.close()

    def _device(self, facts: DeviceFacts, processes: Sequence[DeviceProcess]) -> dict[str, Any]:
        values = self.latest(facts.device)
        mask = values.get("event_reasons")
        return {
            "device": facts.device,
            "name": facts.name,
            "uuid": facts.uuid,
            "mig": facts.mig,
            "values": dict(values),
            "units": {name: METRICS[name].unit for name in values},
            "clock_reasons": None if mask is None else list(reasons.in_words(int(mask))),
            "not_supported": dict(self.missing(facts.device)),
            "processes": [
                {"pid": p.pid, "name": process_name(p.pid), "memory_bytes": p.memory_bytes}
                for p in processes
                if p.device == facts.device
            ],
            "sentences": list(self.sentences(facts.device)),
        }

    def __enter__(self) -> "Board":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _called(seconds: float) -> str:
    if seconds >= HISTORY_S - 5:
        return "the last minute"
    return f"the last {seconds:.0f} s" if seconds >= 1 else "this look"
