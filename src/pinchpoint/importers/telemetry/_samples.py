"""Builds the ``counters`` table from samples, whatever file they come from."""

from array import array
from collections.abc import Callable, Iterator
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.files.packed import unpacked
from pinchpoint.importers.health import FACTS
from pinchpoint.trace import Device, Names, Source, Table, Trace, table

MOST_SAMPLES = 50_000_000  # a week of eight devices at 1 Hz; more is no telemetry log
LONGEST_LINE = 1 << 16  # characters; a row of many metrics has some hundred
_LATEST_NS = 1 << 62  # in 2116; the difference of two earlier times fits into 64 bits
_DEVICES = 1 << 20  # numbers that a machine may have

# What tools write where they have no value. Never a number, never 0.
_NO_VALUE = {
    "",
    "-",
    "n/a",
    "[n/a]",
    "[not supported]",
    "not supported",
    "[unknown error]",
    "[gpu requires reset]",
    "[insufficient permissions]",
    "err!",
    "nan",
}


class Samples:
    """Collects (time, name, value, device); a refused value is counted, not stored."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names = Names()
        self._time, self._value = array("q"), array("d")
        self._name, self._device = array("i"), array("i")
        self._refused: dict[str, int] = {}
        self._notes: list[tuple[str, int, str]] = []
        self._unsound = 0

    def __len__(self) -> int:
        return len(self._time)

    @property
    def devices(self) -> set[int]:
        """Numbers of the devices that were sampled."""
        return {number for number in self._device if number >= 0}

    def add(self, time_ns: int, name: str, value: float | None, device: int | None) -> None:
        """One sample; None is a value that the device did not give.

        The one place where samples enter: what no clock, device or sensor gives is left out.
        """
        if not 0 <= time_ns < _LATEST_NS or not 0 <= (device or 0) < _DEVICES:
            self._unsound += 1
            return
        if value is None or not isfinite(value):
            self._refused[name] = self._refused.get(name, 0) + 1
            return
        if len(self) >= MOST_SAMPLES:
            raise UnreadableFile(
                f"{self._path}: more than {MOST_SAMPLES:,} samples", hint="cut the log in pieces"
            )
        self._time.append(time_ns)
        self._name.append(self._names.id_of(name))
        self._value.append(value)
        self._device.append(-1 if device is None else device)

    def note(self, fact: str, count: int, detail: str) -> None:
        """A health fact."""
        self._notes.append((fact, count, detail))

    def trace(
        self,
        format_name: str,
        devices: tuple[Device, ...] = (),
        *,
        recorder: str,
        origin_ns: int | None = None,
        truncated: bool = False,
    ) -> Trace:
        """The finished trace; times become relative to the first sample."""
        if not len(self) and self._unsound:
            raise UnreadableFile(
                f"{self._path}: times or devices that no machine has, in each of "
                f"{self._unsound} samples",
                hint="record it again, on a machine whose clock is right",
            )
        if not len(self):
            raise UnreadableFile(
                f"{self._path}: the header of a telemetry log, and no sample after it",
                hint="let the logger run while the program works",
            )
        if self._unsound:
            detail = f"{self._unsound} samples have times or devices that no machine has"
            self.note("telemetry-unsound", self._unsound, f"{detail}, and were left out")
        counters, first_ns = self.counters()
        for name, count in self._refused.items():
            self.note("telemetry-no-value", count, f"{name}: {count} samples without a value")
        health = health_table(self._notes, self._names)
        return Trace(
            source=Source(
                str(self._path), format_name, self._path.stat().st_size, truncated, recorder
            ),
            names=self._names.freeze(),
            devices=devices,
            origin_ns=None if origin_ns is None else origin_ns + first_ns,
            counters=counters,
            health=health,
        )

    def counters(self, *, before: Names | None = None) -> tuple[Table, int]:
        """The table in order of time, relative to the first sample, and the time of that one.

        ``before`` continues the names of another trace.
        """
        time, name, value, device = (
            np.frombuffer(held, held.typecode)
            for held in (self._time, self._name, self._value, self._device)
        )
        if (time[1:] < time[:-1]).any():  # most logs are in order, and need no copies for it
            order = np.argsort(time, kind="stable")
            time, name, value, device = (column[order] for column in (time, name, value, device))
        if before is not None:
            name = np.array(before.ids_of(self._names.freeze()), np.int32)[name]
        first_ns = int(time[0]) if len(time) else 0
        columns: dict[str, np.ndarray[Any, Any]] = {
            "time_ns": time - first_ns,
            "name": name,
            "value": value,
            "device": np.maximum(device, 0),
        }
        return table("counters", columns, {"device": device < 0}), first_ns


def health_table(notes: list[tuple[str, int, str]], names: Names) -> Table:
    """Rows of ``health`` from (fact, count, detail)."""
    return table(
        "health",
        {
            "fact": np.array([names.id_of(fact) for fact, _, _ in notes], np.int32),
            "severity": np.array([FACTS[fact].severity for fact, _, _ in notes], np.uint8),
            "count": np.array([count for _, count, _ in notes], np.int64),
            "detail": np.array([names.id_of(detail) for _, _, detail in notes], np.int32),
        },
    )


def number(text: str) -> float | None:
    """A cell as a number: ``99 %``, ``1699 MiB``, ``0x4``, ``[N/A]``; None where there is none."""
    cell = text.strip().lower()
    if cell in _NO_VALUE:
        return None
    if cell.startswith("0x"):
        return _or_none(lambda: float(int(cell, 16)))
    return _or_none(lambda: float(cell.split()[0]))


def small_number(text: str) -> int | None:
    """A device number; None for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else None


def _or_none(read: Callable[[], float]) -> float | None:
    try:
        value = read()
    except (ValueError, IndexError, OverflowError):
        return None
    return value if np.isfinite(value) else None


def lines(path: Path) -> Iterator[str]:
    """Lines without their ends; bytes that are no text become marks. Never reads a giant line.

    A file that was emptied under its writer begins with a hole of zero bytes: they are left out.
    """
    try:
        with (
            unpacked(path) as plain,
            plain.open(encoding="utf-8-sig", errors="replace", newline=None) as file,
        ):
            while line := file.readline(LONGEST_LINE):
                yield line.replace("\0", "").rstrip("\r\n")
    except OSError as error:
        raise UnreadableFile(
            f"{path}: {error.strerror or error}", hint="check the path and its permissions"
        ) from None
