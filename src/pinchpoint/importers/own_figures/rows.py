"""Rows of text between commas, semicolons or tabs, below a line that names the columns."""

import csv
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from pinchpoint.frozen import dataclass
from pinchpoint.importers.own_figures.records import Records, is_stamp, number_of
from pinchpoint.importers.program_logs._stamps import Stamps
from pinchpoint.importers.telemetry._samples import lines
from pinchpoint.regex import regex

_DELIMITERS = (",", "\t", ";", "|")
_LOOKED_AT = 60  # lines by which a table is told
_ALIKE = 0.9  # of them: with as many cells as the header has; a log may go on behind it
_LEAST_TEXTS = 4  # columns of a table without a number: sentences have fewer commas, or differ
_DIGITS = regex(r"\d+")
_NEXT = 5  # rows below the names: the first may be a heading, or empty
_MOST_CELLS = 4000  # of a row: more are data; all counters of eight XCDs are 2,718 columns
_LONGEST_NAME = 60  # characters of a column's name; longer is a sentence


@dataclass(frozen=True)
class Layout:
    """Where a table begins, what parts its cells, and what its columns are called."""

    skipped: int  # lines before the first row
    delimiter: str
    names: tuple[str, ...]
    said: bool  # whether a header names the columns


def layout_of(path: Path) -> Layout | None:
    """How a text is a table; None where it is none."""
    head = [f"{line}\n" for line in islice(lines(path), _LOOKED_AT)]
    for delimiter in _DELIMITERS:
        held = any(delimiter in line for line in head)
        if held and (layout := _layout(head, delimiter)) is not None:
            return layout
    return None


def _layout(head: Sequence[str], delimiter: str) -> Layout | None:
    rows = _parsed(head, delimiter)
    for at, (first, row) in enumerate(rows[: len(rows) // 2 + 1]):
        width = len(row)
        below = [cells for _, cells in rows[at + 1 :]]
        if not 2 <= width <= _MOST_CELLS or not below:
            continue
        if sum(len(cells) == width for cells in below) < _ALIKE * len(below):
            continue
        names = [cell.strip().lstrip("# ") for cell in row]
        alike = [cells for cells in below if len(cells) == width][:_NEXT]
        numbers, values = (max(sum(map(_is_number, r)) for r in rs) for rs in ([names], alike))
        if 0 < values <= numbers:
            if len(below) < 2 or at:
                return None
            return Layout(0, delimiter, tuple(f"column {n}" for n in range(1, width + 1)), False)
        # Sentences differ in their numbers: no row of them names the others.
        shapes = {_DIGITS.sub("#", ",".join(cells)) for cells in (row, *alike)}
        few = width < _LEAST_TEXTS or any(len(c) != width for c in below)
        texts = values == 0 and (few or (len(alike) > 1 and len(shapes) == 1))
        if texts or any(len(name) > _LONGEST_NAME for name in names):
            return None  # sentences with commas
        return Layout(first, delimiter, _apart(names), True)
    return None


def _apart(names: Sequence[str]) -> tuple[str, ...]:
    """Each column under a name of its own."""
    found: dict[str, None] = {}
    for number, name in enumerate(names, 1):
        name = name or f"column {number}"
        found[f"{name} ({number})" if name in found else name] = None
    return tuple(found)


def _parsed(head: Sequence[str], delimiter: str) -> list[tuple[int, list[str]]]:
    """Rows, and at which line the next one begins: cells in quotes may have several lines."""
    found: list[tuple[int, list[str]]] = []
    reader = csv.reader(head, delimiter=delimiter, skipinitialspace=True)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error:
            return []
        if cells and (not cells[0].startswith("#") or not found):
            found.append((reader.line_num, cells))
    return found[:-1] if len(found) > 3 and len(head) == _LOOKED_AT else found


def _is_number(cell: str) -> bool:
    return number_of(cell) is not None


def read_rows(path: Path, layout: Layout, records: Records) -> tuple[int, list[tuple[str, str]]]:
    """Fills the records; how many lines were no row, and what a column of times says."""
    csv.field_size_limit(min(sys.maxsize, 1 << 20))
    others, times = 0, _Times(layout.names)
    for cells in _rows(path, layout):
        if len(cells) != len(layout.names):
            others += bool(cells)
            continue
        records.add(_with_duration(dict(zip(layout.names, cells, strict=True))))
        times.add(cells)
    return others, times.said()


# pmc_perf.csv of rocprofiler-compute, counters of rocprofv3: nanoseconds of the device's clock.
_DISPATCH, _STAMPS = ("Dispatch_ID", "Dispatch_Id"), ("Start_Timestamp", "End_Timestamp")
DURATION = "Duration (ns)"


def _with_duration(row: dict[str, str]) -> dict[str, str]:
    """The row of a dispatch with how long it took instead of from when to when."""
    if not any(name in row for name in _DISPATCH) or not all(name in row for name in _STAMPS):
        return row
    start, end = (row[name].strip() for name in _STAMPS)
    if not (start.isdigit() and end.isdigit() and int(end) >= int(start)):
        return row
    first = next(iter(row))
    rest = {k: v for k, v in row.items() if k not in (first, *_STAMPS)}
    return {first: row[first], DURATION: str(int(end) - int(start)), **rest}


def _rows(path: Path, layout: Layout) -> Iterator[list[str]]:
    reader = csv.reader(_kept(path, layout), delimiter=layout.delimiter, skipinitialspace=True)
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield []


def _kept(path: Path, layout: Layout) -> Iterator[str]:
    """Lines but for comments; within quotes a line that begins with # is of a cell."""
    quoted = False
    for line in islice(lines(path), layout.skipped, None):
        if quoted or not line.startswith("#"):
            quoted ^= line.count('"') % 2 == 1
            yield f"{line}\n"


class _Times:
    """The first column of stamps, if there is one."""

    def __init__(self, names: Sequence[str]) -> None:
        words = ("time", "date", "stamp")
        self._at = next(
            (n for n, name in enumerate(names) if any(w in name.lower() for w in words)), None
        )
        self._name = names[self._at] if self._at is not None else ""
        self._stamps = Stamps()
        self._first: float | None = None
        self._last, self._count = 0.0, 0

    def add(self, cells: Sequence[str]) -> None:
        """One row."""
        if self._at is None:
            return
        seconds = self._seconds(cells[self._at])
        if seconds is not None:
            self._first = seconds if self._first is None else self._first
            self._last = seconds
            self._count += 1

    def _seconds(self, cell: str) -> float | None:
        if ":" in cell:
            stamp, _ = self._stamps.of(cell)
            return stamp.seconds if stamp is not None else None
        number = number_of(cell)
        return number if number is not None and is_stamp(self._name, number) else None

    def said(self) -> list[tuple[str, str]]:
        """From the first row to the last one."""
        if self._first is None or self._count < 2 or self._last <= self._first:
            return []
        whole = self._last - self._first
        return [
            (f"{self._name}: first to last row", f"{whole:,.6g} s"),
            ("between two rows, mean", f"{whole / (self._count - 1):,.4g} s"),
        ]


__all__ = ["Layout", "layout_of", "read_rows"]
