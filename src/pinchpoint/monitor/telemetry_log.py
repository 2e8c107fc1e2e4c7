"""``telemetry.csv``: one row for each look at each device, and one for the host.

Columns: ``unix_ns``, ``device`` (empty: the host), then every name of ``metrics.py``. An empty cell
is unknown. The file is complete after every tick, so a killed run keeps what it had.
"""

from io import TextIOWrapper
from pathlib import Path

from pinchpoint.errors import UsageError
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
