"""Samples of a run: the log that keeps them, and what they sum up to."""

from collections.abc import Iterable
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

from pinchpoint.errors import UsageError
from pinchpoint.monitor import reasons
from pinchpoint.monitor.metrics import METRICS
from pinchpoint.monitor.sample import Sample

COLUMNS = ("unix_ns", "device", *METRICS)


class TelemetryLog:
    """Writes samples until the disk says no; then ``problem`` says why and the rest is dropped."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError if the file cannot be made."""
        self.problem: str | None = None
        self.path = path
        try:
            self._file: TextIOWrapper | None = path.open("w", encoding="utf-8", newline="\n")
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
    """Summaries by device (None is the host) and metric."""

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
