"""``experiments.jsonl``: one line an experiment, only ever added to (``bench.experiment/1``)."""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pinchpoint.bench.metrics import read_bounded
from pinchpoint.errors import UnreadableFile, UsageError

SCHEMA = "bench.experiment/1"


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """A hypothesis, what was predicted, what was measured. Gains are how much longer the program
    takes without the change: 0.5 is 1.5 times as fast."""

    schema: str = SCHEMA
    experiment_id: str
    utc: str
    bench_id: str
    knobs: dict[str, str]
    hypothesis: str
    finding: str | None = None
    predicted_gain: float | None = None
    predicted_range: tuple[float, float] | None = None
    outcome: str  # gain, no gain, loss, cannot tell, not applied, failed
    why: str
    measure: str | None = None
    measured_gain: float | None = None
    measured_ci95: tuple[float, float] | None = None
    pairs: int = 0
    applied: dict[str, int] = {}
    changes_numbers: bool = False
    commit: str | None = None
    env_sha256: str | None = None
    artifacts: str | None = None  # the session folder
    unknown: dict[str, str] = {}

    def as_predicted(self) -> bool | None:
        """Whether the measured interval meets the predicted range; None if one is missing."""
        if self.measured_ci95 is None or self.predicted_range is None:
            return None
        low, high = self.measured_ci95
        return low <= self.predicted_range[1] and high >= self.predicted_range[0]


def append(path: Path, experiment: Experiment) -> None:
    """Add one line, whole, also when two processes write at once."""
    line = msgspec.json.encode(experiment) + b"\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="name another --ledger") from None


def read(path: Path) -> list[Experiment]:
    """All experiments, oldest first; a last line that was cut off is left out."""
    found: list[Experiment] = []
    lines: Sequence[bytes] = read_bounded(path).split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=Experiment))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if number == len(lines):
                break
            raise UnreadableFile(f"{path}, line {number}: {error}", hint="was it edited?") from None
    return found


def learned(experiments: Sequence[Experiment]) -> dict[str, list[dict[str, Any]]]:
    """What is known about each setting, newest first."""
    table: dict[str, list[dict[str, Any]]] = {}
    for e in reversed(experiments):
        name = ", ".join(f"{k}={v}" for k, v in e.knobs.items())
        table.setdefault(f"{e.bench_id}: {name}", []).append(
            {"outcome": e.outcome, "gain": e.measured_gain, "utc": e.utc}
        )
    return table
