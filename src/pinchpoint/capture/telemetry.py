"""Samples devices and host into a run folder while a program runs."""

from dataclasses import dataclass
from pathlib import Path

from pinchpoint.monitor.host import HostSource
from pinchpoint.monitor.nvml import NoDevices, NvmlSource
from pinchpoint.monitor.sample import Missing, Sample, Source
from pinchpoint.monitor.sampler import Sampler
from pinchpoint.monitor.summary import Summary
from pinchpoint.monitor.telemetry_log import TelemetryLog
from pinchpoint.run_folder.layout import TELEMETRY_FILE

CALM_AFTER_S = 600.0  # then once a second, so that the log of a day stays readable


@dataclass(frozen=True)
class Sampled:
    """What came of it."""

    summary: Summary
    missing: dict[str, dict[str, str]]  # reasons by device ("host") and metric
    devices: tuple[str, ...]
    no_devices: str | None
    problem: str | None  # of the log


class Telemetry:
    """A sampler that begins at once. ``host`` may be told later which process to follow."""

    def __init__(self, folder: Path, root_pid: int | None, *, interval_s: float) -> None:
        """Raises UsageError if the log cannot be written."""
        self._log, self._summary = TelemetryLog(folder / TELEMETRY_FILE), Summary()
        self.host = HostSource(root_pid)
        self._devices = device_source(self.host)
        sources: list[Source] = [self.host]
        if isinstance(self._devices, NvmlSource):
            sources.insert(0, self._devices)
        self._sources = sources
        self._sampler = Sampler(sources, interval_s, self._take, calm_after_s=CALM_AFTER_S)
        self._sampler.start()

    def stop(self) -> Sampled:
        """End, and sum up."""
        self._sampler.stop()
        self._log.close()
        devices = self._devices
        found = devices.devices if isinstance(devices, NvmlSource) else ()
        return Sampled(
            summary=self._summary,
            missing=_reasons([source.missing for source in self._sources]),
            devices=tuple(device.name for device in found),
            no_devices=devices if isinstance(devices, str) else None,
            problem=self._log.problem,
        )

    def _take(self, samples: list[Sample]) -> None:
        self._log.add(samples)
        self._summary.add(samples)


def device_source(host: HostSource) -> NvmlSource | str:
    """The devices, or why there are none to look at."""
    try:
        return NvmlSource(own_pids=host.run_pids)
    except NoDevices as why:
        return str(why)


def _reasons(all_missing: list[Missing]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for missing in all_missing:
        for (device, metric), why in missing.reasons.items():
            found.setdefault("host" if device is None else device, {})[metric] = why
    return found
