"""Rows under named columns, from JSON or CSV, as tables: as they stand, and what columns hold."""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from pinchpoint.importers.files.units import UNKNOWN, Unit, unit_of, unit_of_key
from pinchpoint.importers.program_logs._figures import LARGEST, MOST_VALUES, shown
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

MOST_ROWS = 200  # that are shown as they stand; more are a series
LEAST_SERIES = 10  # rows of which figures of a column say more than the rows do
_MOST_COLUMNS = 14  # of a table: what a page has room for
_MOST_NAMES = 400  # columns that are kept; records of a benchmark have some dozens
_LONGEST = 80  # characters of a cell: the width of a page
_FULL = 0.8  # of the rows: a column that fewer have is of records of another kind
_SHARE = regex(r"^(?!.*cumul).*(?:percent|%|pct|share)", 2)  # of one row, not up to it
_TOTAL = regex(r"(?:^|[_ ])total", 2)
_WHOLE_PERCENT, _WHOLE_OFF_PERCENT = 100.0, 1.0  # shares of a whole, printed with a digit or two
_PART = regex(r"kernel|operator|\bops?\b|layer|function|module", 2)  # of a program
_OF_WHAT = regex(r"kernel|operator|model|device|gpu", 2)  # what figures are of
_WORD = regex(r"[^\W\d_]{2,}")  # what a stamp has not
# run_id, workloadIndex, rank, "Seed": the last word of the name.
_ID = regex(
    r"(?:^|[\W_])(?:ids?|idx|index|rank|seed|uuid|pid|tid|port|number|nr|version)$"
    r"|[a-z](?:Id|ID|Idx|Index|Rank|Seed)$|^(?:ID|Idx|Index|Rank|Seed)$|^(?:ID|INDEX|RANK|SEED)$"
    r"|^Unnamed: \d+$"
)
_WHEN = regex(r"stamp|date|unix|^time$", 2)
_FIRST_SECOND, _LAST_SECOND = 1.2e9, 2.5e9  # of clocks that wrote records: 2008 to 2049
FIGURES = ("column", "unit", "rows", "median", "mean", "p95", "min", "max")

Scalar = float | str


class Records:
    """Columns of records, filled one record at a time; memory is that of the numbers."""

    def __init__(self, units: Mapping[str, Unit] | None = None) -> None:
        self._numbers: dict[str, array[float]] = {}
        self._texts: dict[str, set[str]] = {}
        self._units: dict[str, Unit] = dict(units or {})
        self._mixed: set[str] = set()  # columns of which rows have units of their own
        self._rows: list[dict[str, str]] = []
        self._names: dict[str, None] = {}
        self.count = 0

    def add(self, record: Mapping[str, Any]) -> None:
        """One record, its values numbers or texts; the rest is left out."""
        self.count += 1
        self._said_units(record)
        cells: dict[str, str] = {}
        for name, value in record.items():
            if name not in self._names and len(self._names) >= _MOST_NAMES:
                continue
            if (cell := self._cell(name, value)) is not None:
                cells[name] = cell
            self._names.setdefault(name)
        if len(self._rows) <= MOST_ROWS:
            self._rows.append(cells)

    def _cell(self, name: str, value: Any) -> str | None:
        """A value as it is shown, kept as a number where it is one; None for a long text."""
        number = number_of(value)
        if number is not None:
            held = self._numbers.setdefault(name, array("d"))
            if len(held) < MOST_VALUES:
                held.append(number)
            return _short(value.strip()) if isinstance(value, str) else _plain(number)
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, str) or not (text := value.strip()) or "\n" in text:
            return None
        texts = self._texts.setdefault(name, set())
        if len(texts) <= MOST_ROWS:
            texts.add(text[:_LONGEST])
        return text[:_LONGEST]

    def _said_units(self, record: Mapping[str, Any]) -> None:
        """``unit: ms`` is of its neighbours, ``time_unit: ns`` of those with time in their name."""
        for name, value in record.items():
            short = name.rpartition(".")[2].lower()
            if not isinstance(value, str) or not short.rstrip("s").endswith("unit"):
                continue
            unit = unit_of(value)
            if unit is UNKNOWN:
                continue
            of = short.rstrip("s").removesuffix("unit").strip("_ ")
            place = name.rpartition(".")[0]
            for other in record:
                if other.rpartition(".")[0] == place and of in other.lower():
                    known = self._units.setdefault(other, unit)
                    self._mixed |= {other} if known != unit else set()

    def unit(self, name: str) -> Unit:
        """As its neighbours or its name say."""
        if name in self._mixed:
            return UNKNOWN
        return self._units.get(name) or unit_of_key(name)

    def said_units(self) -> bool:
        """Whether a neighbour says the unit of any column."""
        return any(name in self._numbers for name in self._units)

    def measured_names(self) -> list[str]:
        """Columns of numbers that differ, or of the only row."""
        return [
            n for n, held in self._numbers.items() if self.count == 1 or len(set(held[:1000])) > 1
        ]

    def has_numbers(self) -> bool:
        """Whether any column holds some."""
        return bool(self._numbers)

    def tables(self, title: str) -> tuple[SummaryTable, ...]:
        """What the columns hold, where there are many rows; the rows, where there are few."""
        found: tuple[SummaryTable, ...] = ()
        parted = self._share() is not None and self.count <= MOST_ROWS
        series = self.count >= LEAST_SERIES and not parted and not self._turned()
        if series and (rows := tuple(self._figures())):
            found += (SummaryTable(FIGURES, rows, f"{title}: {self.count:,} rows"),)
        if self.count <= MOST_ROWS and (table := self._as_it_stands(title)):
            # rows that texts tell apart are of several things: their own figures come first
            several = any(len(set(filter(_WORD.search, t))) > 1 for t in self._texts.values())
            found = (table, *found) if several else (*found, table)
        return found

    def _share(self) -> str | None:
        """The column that parts a whole among named rows, all or the heaviest: rows say it all."""
        named = any(len(texts) == self.count for texts in self._texts.values())
        for name, values in self._numbers.items():
            if named and self.count > 1 and len(values) == self.count and _SHARE.search(name):
                missing = _WHOLE_PERCENT - sum(values)
                heaviest = sorted(values, reverse=True) == list(values)
                heaviest &= 0 < missing <= _WHOLE_PERCENT / 2  # most of it, largest first
                if min(values) >= 0 and (heaviest or abs(missing) <= _WHOLE_OFF_PERCENT):
                    return name
        return None

    def _shares_first(self, columns: list[str]) -> list[str]:
        """What rows are called, their share and what it is of: a screen cuts on the right."""
        share = self._share()
        if share is None and (total := self._time_of_parts()) is None:
            return columns
        totals = [n for n in columns if n in self._numbers and _TOTAL.search(n)]
        first = [*[n for n in columns if n in self._texts][:1], share or total, *totals]
        return [*(n for n in dict.fromkeys(first) if n in columns),
                *(n for n in columns if n not in first)]  # fmt: skip

    def _time_of_parts(self) -> str | None:
        """The column that says how long each kernel, operator or function took in all."""
        column = next(iter(self._names), "")
        if len(self._texts.get(column, ())) <= self.count / 2 or not _PART.search(column):
            return None
        for name, values in self._numbers.items():
            told = len(values) == self.count > 1 and min(values) >= 0
            if told and _TOTAL.search(name) and self.unit(name).family == "time":
                return name
        return None

    def in_all(self) -> Iterator[tuple[str, str]]:
        """Texts that all rows share, which a table of what differs leaves out: the kernel, say."""
        for name, texts in self._texts.items():
            if self.count > 1 and len(texts) == 1 and _OF_WHAT.search(name):
                yield name, next(iter(texts))

    def apart(self) -> Iterator[tuple[str, str]]:
        """What a column of times since 1970 says, where every record has one, none before its
        earlier ones."""
        for name, values in self._numbers.items():
            whole = len(values) == self.count >= LEAST_SERIES and is_stamp(name, values[0])
            if not whole or not (between := np.diff(np.asarray(values))).sum() > 0:
                continue
            if between.min() >= 0:
                yield f"{name}: first to last record", f"{between.sum():,.6g} s"
                yield "between two records, median", f"{np.median(between):,.4g} s"
                yield "mean", f"{between.mean():,.4g} s"

    def _turned(self) -> bool:
        """Whether rows are quantities, each with its unit, and columns are runs."""
        return any(
            len({unit_of_key(text).family for text in texts} - {""}) > 1
            for texts in self._texts.values()
        )

    def _figures(self) -> Iterator[tuple[str, ...]]:
        by_unit = sorted(self._numbers, key=lambda name: self.unit(name).family == "")
        for name in by_unit:
            held = np.asarray(self._numbers[name])
            if len(held) < 2 or held.min() == held.max() or name in self._mixed:
                continue
            if self._tells_apart(name) or np.isin(held, (0.0, 1.0)).all():
                continue  # 0 and 1: yes and no
            figures = (
                np.median(held),
                held.mean(),
                np.percentile(held, 95),
                held.min(),
                held.max(),
            )
            unit = self.unit(name).name or "not said"
            yield (name, unit, f"{len(held):,}", *(shown(float(f)) for f in figures))

    def _tells_apart(self, name: str) -> bool:
        """A number that says which row it is, or when it was written, and measures nothing."""
        stamp = is_stamp(name, self._numbers[name][0])
        return not self.unit(name).family and (stamp or _ID.search(name) is not None)

    def _as_it_stands(self, title: str) -> SummaryTable | None:
        names = list(self._names)
        filled = {name: sum(name in row for row in self._rows) for name in names}
        if any(filled[name] < _FULL * self.count for name in names) and self.count > LEAST_SERIES:
            return None
        same = [
            name for name in names
            if self.count > 1 and len({row.get(name, "") for row in self._rows}) == 1
        ]  # fmt: skip
        columns = [name for name in names if name not in same and filled[name]]
        if len(columns) > _MOST_COLUMNS:  # what has a unit, and what tells the rows apart
            told = [n for n in columns if n in self._texts][:4]
            measured = [n for n in columns if n in self._numbers and self.unit(n).family]
            measured.sort(key=lambda n: not self._tells_speed(n))
            kept = {*told, *measured[: _MOST_COLUMNS - len(told)]}
            for name in columns:
                if len(kept) >= _MOST_COLUMNS:
                    break
                kept.add(name)
            columns = [name for name in columns if name in kept]
            # a screen cuts on the right: what took how long, or was how fast, comes first
            columns.sort(key=lambda n: 0 if n in told else 2 - self._tells_speed(n))
        if not any(name in self._numbers for name in columns):
            return None
        columns = self._shares_first(columns)
        if self._share() is None and (total := self._time_of_parts()) in columns:
            self._rows.sort(key=lambda row: -(number_of(row.get(total, "")) or 0.0))
            title += f", largest {total} first"
        cells = tuple(tuple(row.get(name, "") for name in columns) for row in self._rows)
        left = len([n for n in names if n not in same]) - len(columns)
        more = f", {left} more columns" if left else ""
        heads = tuple(self._head(name) for name in columns)
        return SummaryTable(heads, cells, f"{title}{more}")

    def _tells_speed(self, name: str) -> bool:
        family = self.unit(name).family
        return name in self._numbers and (family == "time" or family.endswith("/s"))

    def _head(self, name: str) -> str:
        """The name, with the unit where only a neighbour says it."""
        unit = self._units.get(name) if name not in self._mixed else None
        return f"{name} ({unit.name})" if unit and name in self._numbers else name


def is_stamp(name: str, value: float) -> bool:
    """Whether a number is seconds since 1970, as the name of its column says too."""
    return _FIRST_SECOND <= value < _LAST_SECOND and _WHEN.search(name) is not None


def number_of(value: Any) -> float | None:
    """A finite number, or text that is one; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str):
        if len(value) > 40 or not any(map(str.isdigit, value)):
            return None
        text = value.strip().rstrip("%").replace(",", "")
        number, _, unit = text.partition(" ")
        if unit and unit_of(unit) is UNKNOWN:
            return None
        try:
            value = float(number)
        except ValueError:
            return None
    return float(value) if abs(value) < LARGEST else None


def _plain(number: float) -> str:
    return f"{number:.0f}" if number == int(number) and abs(number) < 1e9 else f"{number:.5g}"


def _short(text: str) -> str:
    """A number as the file has it, with fewer digits where nobody measures so many."""
    if len(text) <= _MOST_DIGITS or "." not in text:
        return text
    number = number_of(text)
    return text if number is None or not text[-1].isdigit() else f"{number:.6g}"


_MOST_DIGITS = 10  # characters; seven digits and a point are finer than any clock of a program


def flat(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Scalars of a record and of the records in it, by names with dots."""
    for key, value in record.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and prefix.count(".") < 3:
            yield from flat(value, f"{name}.")
        elif not isinstance(value, dict | list):
            yield name, value


def records_of(
    rows: Iterable[Mapping[str, Any]], units: Mapping[str, Unit] | None = None
) -> Records:
    """All of them, nested ones by names with dots."""
    records = Records(units)
    for row in rows:
        records.add(dict(flat(row)))
    return records


__all__ = ["FIGURES", "MOST_ROWS", "Records", "flat", "is_stamp", "number_of", "records_of"]
