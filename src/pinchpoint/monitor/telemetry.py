"""Samples of devices and host while a program runs: a log that keeps them, and their summary."""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from io import TextIOWrapper
from pathlib import Path

from pinchpoint.errors import UsageError
from pinchpoint.frozen import dataclass
from pinchpoint.monitor import reasons
from pinchpoint.monitor.host import HostSource
from pinchpoint.monitor.nvml import NoDevices, NvmlSource
from pinchpoint.monitor.sample import METRICS, Missing, Sample, Sampler, Source
from pinchpoint.replacing import lock

COLUMNS = ("unix_ns", "device", *METRICS)


class TelemetryLog:
    """``telemetry.csv``: one row for each look at each device, and one for the host.

    Columns: ``unix_ns``, ``device`` (empty: the host), then every name of ``metrics.py``. An empty
    cell is unknown. The file is complete after every tick, so a killed run keeps what it had. When
    the disk says no, ``problem`` says why and the rest is dropped.
    """

    def __init__(self, path: Path) -> None:
        """Raises UsageError if the file cannot be made, or another process writes it now."""
        self.problem: str | None = None
        self.path = path
        try:
            self._file: TextIOWrapper | None = _opened(path)
        except BlockingIOError:
            raise UsageError(
                f"{path}: another process writes this log", hint="name another file"
            ) from None
        except OSError as error:
            raise UsageError(
                f"{path}: {error.strerror}", hint="name a file in a folder you may write to"
            ) from None
        self._write(",".join(COLUMNS) + "\n")

    def add(self, samples: list[Sample]) -> None:
        """Append one tick."""
        self._write("".join(row(sample) for sample in samples))

    def close(self) -> None:
        """Finish the file."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                self.problem = self.problem or f"{self.path}: {error.strerror}"

    def _write(self, text: str) -> None:
        if self._file is None or self.problem:
            return
        try:
            self._file.write(text)
            self._file.flush()
        except OSError as error:
            self.problem = f"{self.path}: {error.strerror}; the samples after that are lost"


def _opened(path: Path) -> TextIOWrapper:
    """Empty, and locked until it is closed: rows of two would be mixed, some of them cut.

    Raises BlockingIOError if it is locked already.
    """
    file = open(  # noqa: SIM115 - Path.open takes no opener
        path,
        "w",
        encoding="utf-8",
        newline="\n",
        opener=lambda name, flags: os.open(name, flags & ~os.O_TRUNC, 0o666),
    )
    try:
        if path.is_file():
            lock(file)
            file.truncate()
    except OSError:
        file.close()
        raise
    return file


def row(sample: Sample) -> str:
    """The sample as a line of the file."""
    cells = [str(sample.unix_ns), sample.device or ""]
    cells += [_cell(sample.values.get(name)) for name in METRICS]
    return ",".join(cells) + "\n"


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return str(int(value)) if float(value).is_integer() else f"{value:.5g}"


@dataclass
class Spread:
    """A running summary of one metric."""

    count: int = 0
    total: float = 0.0
    least: float = float("inf")
    most: float = float("-inf")

    def add(self, value: float) -> None:
        """One more value."""
        self.count += 1
        self.total += value
        self.least, self.most = min(self.least, value), max(self.most, value)

    def as_json(self) -> dict[str, float]:
        """For a document."""
        mean = self.total / self.count
        return {"mean": round(mean, 6), "min": self.least, "max": self.most}


class Summary:
    """Mean, least and most by device (None is the host) and metric; no sample is kept."""

    def __init__(self) -> None:
        self._spread: dict[str | None, dict[str, Spread]] = {}
        self._reasons: dict[str, dict[int, int]] = {}
        self._looks: dict[str, int] = {}

    def add(self, samples: Iterable[Sample]) -> None:
        """Take in one tick."""
        for sample in samples:
            spreads = self._spread.setdefault(sample.device, {})
            for name, value in sample.values.items():
                if name == "event_reasons" and sample.device is not None:
                    self._add_reasons(sample.device, int(value))
                else:
                    spreads.setdefault(name, Spread()).add(value)

    def devices(self) -> list[dict[str, object]]:
        """One entry a device: each metric's spread, and the share of looks of each reason."""
        found: list[dict[str, object]] = []
        for device in sorted(d for d in self._spread if d is not None):
            entry: dict[str, object] = {"device": device}
            entry |= {name: spread.as_json() for name, spread in self._spread[device].items()}
            entry["clock_reasons"] = self._shares(device)
            found.append(entry)
        return found

    def host(self) -> dict[str, object]:
        """The host's metrics."""
        return {name: spread.as_json() for name, spread in self._spread.get(None, {}).items()}

    def _add_reasons(self, device: str, mask: int) -> None:
        self._looks[device] = self._looks.get(device, 0) + 1
        counts = self._reasons.setdefault(device, {})
        for bit in reasons.WORDS:
            if mask & bit:
                counts[bit] = counts.get(bit, 0) + 1

    def _shares(self, device: str) -> dict[str, float]:
        counts, looks = self._reasons.get(device, {}), self._looks.get(device, 0)
        return {reasons.WORDS[bit]: round(n / looks, 4) for bit, n in counts.items()}


@dataclass(frozen=True)
class Rhythm:
    """How often to look. Devices and host share their ticks where the intervals are the same."""

    devices_every_s: float
    host_every_s: float
    counters: bool = True  # activity counters of the devices, which cost more than the rest
    calm_after_s: float = float("inf")  # then once a second


@dataclass(frozen=True)
class Sampled:
    """What came of it."""

    summary: Summary
    missing: dict[str, dict[str, str]]  # reasons by device ("host") and metric
    devices: tuple[str, ...]  # names
    no_devices: str | None  # why there are none
    problem: str | None  # of the log


class Telemetry:
    """Looks from when it is made until ``stop``. ``host`` may be told later what to follow."""

    def __init__(
        self,
        path: Path,
        rhythm: Rhythm,
        *,
        root_pid: int | None = None,
        own_pids: Callable[[], set[int]] | None = None,
        take: Callable[[list[Sample]], object] = len,
    ) -> None:
        """Samples go to the log at ``path``, the summary, and ``take``. Raises UsageError.

        ``own_pids``: the processes of the run; default: those below ``root_pid``.
        """
        self._log, self._summary, self._take = TelemetryLog(path), Summary(), take
        self._lock = threading.Lock()  # there may be two samplers
        self.host = HostSource(root_pid)
        self.devices, self.no_devices = _devices(rhythm.counters, own_pids or self.host.run_pids)
        beside: list[Source] = [self.devices] if self.devices else []
        self._samplers = (
            [self._sampler([*beside, self.host], rhythm.host_every_s, rhythm)]
            if rhythm.devices_every_s == rhythm.host_every_s or not beside
            else [
                self._sampler([self.host], rhythm.host_every_s, rhythm),
                self._sampler(beside, rhythm.devices_every_s, rhythm),
            ]
        )
        for sampler in self._samplers:
            sampler.start()

    def stop(self) -> Sampled:
        """End, and sum up."""
        for sampler in self._samplers:
            sampler.stop()
        self._log.close()
        return Sampled(
            summary=self._summary,
            missing=_reasons(self.host.missing, *([self.devices.missing] if self.devices else [])),
            devices=tuple(d.name for d in self.devices.devices) if self.devices else (),
            no_devices=self.no_devices,
            problem=self._log.problem,
        )

    def _sampler(self, sources: Sequence[Source], interval_s: float, rhythm: Rhythm) -> Sampler:
        return Sampler(sources, interval_s, self._keep, calm_after_s=rhythm.calm_after_s)

    def _keep(self, samples: list[Sample]) -> None:
        with self._lock:
            self._log.add(samples)
            self._summary.add(samples)
            self._take(samples)


def _devices(
    counters: bool, own_pids: Callable[[], set[int]]
) -> tuple[NvmlSource | None, str | None]:
    """The devices, or why there are none to look at."""
    try:
        return NvmlSource(counters=counters, own_pids=own_pids), None
    except NoDevices as why:
        return None, str(why)


def _reasons(*all_missing: Missing) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for missing in all_missing:
        for (device, metric), why in missing.reasons.items():
            found.setdefault("host" if device is None else device, {})[metric] = why
    return found
