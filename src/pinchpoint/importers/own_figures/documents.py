"""Figures in a JSON document of any shape: lists of records, records by name, lists of numbers."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from pinchpoint.importers.files.units import UNKNOWN, Unit, unit_of, unit_of_key
from pinchpoint.importers.own_figures.records import FIGURES, Records, flat, number_of, records_of
from pinchpoint.importers.program_logs._figures import shown
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

_DEEP = 8  # levels that are looked into; results have three or four
_MOST_TABLES = 30  # more nobody reads on one page
_MOST_SAID = 80  # single values; more nobody reads on one page
_LEAST_LIST = 3  # numbers of a list that are figures: a shape, a pair of bounds has two
_ALIKE = 0.6  # of the keys: records by name share them, and each may lack some
_MOST_NAMED = 2000  # records by name that are rows: more than any sweep
_MOST_INNER = 6  # records by name whose lists are shown: configurations that one page compares
_DEVICE = regex(r"(?:^|[._])(?:gpu|device|accelerator)_?(?:name|model)$", 2)
_LONGEST_DEVICE = 80  # characters: a line
# Names of what is measured, where no unit is said: what a benchmark or a training writes.
_MEASURED = regex(
    r"(?:^|[_. /-])(?:time|latency|throughput|duration|elapsed|speed|fps|tps|qps|runtime|seconds"
    r"|ttft|tpot|itl|mfu|loss|tokens_per_\w+|bandwidth|utili[sz]ation|speedup|tflops|gflops"
    r"|p50|p90|p95|p99|mean|median|stddev|(?:gpu|cpu|memory|ram)_usage)(?:$|[_. /:-])",
    2,
)
# What is set, not measured; and what no program measures.
_SETTINGS = regex(r"(?:^|\.)(?:config\w*|args|arguments|hyper\w*|settings|options)\.", 2)
_SET = regex(
    r"timeout|(?:^|[_.])max|min_|limit|interval|budget|deadline|warm_?up|num_|created|modified|config|args"
    r"|dropout|threshold|rope|tokenizer|_at$|version",
    2,
)


class Found:
    """What a document holds, in its order."""

    def __init__(self, units: Mapping[str, Unit]) -> None:
        self._units = units
        self.tables: list[SummaryTable] = []
        self._said: list[tuple[str, str]] = []
        self._lists: list[tuple[str, ...]] = []
        self.measured = False

    def look(self, value: Any, path: str = "", depth: int = 0) -> None:
        """Into a value and what it holds."""
        if depth > _DEEP:
            return
        if isinstance(value, list):
            self._list(value, path, depth)
        elif isinstance(value, dict):
            self._record(value, path, depth)

    def rows(self, rows: Iterable[dict[str, Any]]) -> None:
        """Records of which the document is a list, one at a time: memory is that of one."""
        first: dict[str, Any] | None = None
        records = Records(self._units)
        for row in rows:
            first = row if first is None else first
            records.add(dict(flat(self._by_metric(row))))
        if records.has_numbers():
            self.take(records, "records")
        if first is not None:
            self._inner(first, "", 0)

    def _by_metric(self, row: dict[str, Any]) -> dict[str, Any]:
        """``{"metric": "gpu_power_w", "value": 300}``: a value under the name of what it is."""
        name = row.get("metric")
        if not isinstance(name, str) or not name or number_of(row.get("value")) is None:
            return row
        self.measured = True
        rest = {key: value for key, value in row.items() if key not in ("metric", "value")}
        return {**rest, name: row["value"]}

    def _list(self, values: list[Any], path: str, depth: int) -> None:
        rows = [value for value in values if isinstance(value, dict)]
        if rows and 2 * len(rows) >= len(values):
            self._rows([self._by_metric(row) for row in rows], path)
            for row in rows[:1]:
                self._inner(row, path, depth)
            return
        numbers = [number for value in values if (number := number_of(value)) is not None]
        if len(numbers) >= _LEAST_LIST and len(numbers) == len(values):
            self._numbers(numbers, path)
        elif not numbers:
            for value in values[:_MOST_TABLES]:
                self.look(value, path, depth + 1)

    def _inner(self, row: dict[str, Any], path: str, depth: int, at: str = "[0]") -> None:
        """Lists within a record; of those of a list the first, which shows what they are."""
        for key, value in row.items():
            if isinstance(value, list) and value and isinstance(value[0], dict):
                self.look(value, f"{path}{at}.{key}", depth + 1)

    def _rows(self, rows: list[dict[str, Any]], path: str) -> None:
        records = records_of(rows, self._units)
        if records.has_numbers():
            self.take(records, path or "records")

    def take(self, records: Records, title: str) -> None:
        """Records as tables."""
        if len(self.tables) < _MOST_TABLES:
            names = records.measured_names()
            self.measured |= any(_is_measured(name, self._units) for name in names)
            self.measured |= records.said_units()
            self.tables += records.tables(title)
            if apart := tuple(records.apart()):
                self.tables.append(SummaryTable((f"times of {title}", "value"), apart))

    def _record(self, record: dict[str, Any], path: str, depth: int) -> None:
        inner = {key: value for key, value in record.items() if isinstance(value, dict)}
        if _alike(list(inner.values())):
            rows = [{"name": key, **value} for key, value in list(inner.items())[:_MOST_NAMED]]
            records = records_of(rows, self._units)
            if records.has_numbers():
                self.take(records, path or "by name")
                for key, value in list(inner.items())[:_MOST_INNER]:
                    self._inner(value, path, depth, f".{key}" if path else key)
                inner = {}
        unit = unit_of(str(record.get("unit", record.get("units", ""))))
        for key, value in record.items():
            if isinstance(value, dict):
                if key in inner:
                    self.look(value, _below(path, key), depth + 1)
            elif isinstance(value, list):
                self.look(value, _below(path, key), depth + 1)
            else:
                self._value(_below(path, key), str(key), value, unit)

    def _value(self, name: str, key: str, value: Any, of_record: Unit) -> None:
        number = number_of(value)
        if isinstance(value, str) and _DEVICE.search(name) and 0 < len(value) <= _LONGEST_DEVICE:
            self._said.append((name, value))
            return
        if number is None or len(self._said) >= _MOST_SAID or _SETTINGS.search(name):
            return
        # a key may have points: dram__bytes_read.sum.per_second
        unit = self._unit(key) if of_record is UNKNOWN else of_record
        self.measured |= _is_measured(name, self._units) or of_record is not UNKNOWN
        text = value.strip() if isinstance(value, str) else _shown(number)
        own = isinstance(value, str) and not value.strip()[-1:].isdigit()
        self._said.append((name, text if own or unit is UNKNOWN else f"{text} {unit.name}"))

    def _numbers(self, numbers: list[float], path: str) -> None:
        held = np.asarray(numbers)
        if not path or held.min() == held.max():
            return
        figures = (np.median(held), held.mean(), np.percentile(held, 95), held.min(), held.max())
        unit = self._unit(path)
        self.measured |= _is_measured(path, self._units)
        cells = (shown(float(figure)) for figure in figures)
        self._lists.append((path, unit.name or "not said", f"{len(held):,}", *cells))

    def _unit(self, name: str) -> Unit:
        return self._units.get(name.rpartition(".")[2]) or unit_of_key(name)

    def all(self) -> tuple[SummaryTable, ...]:
        """The tables, lists of numbers, and single values."""
        found = tuple(self.tables)
        if self._lists:
            columns = ("list", "unit", "values", *FIGURES[3:])
            found += (SummaryTable(columns, tuple(self._lists[:_MOST_SAID]), "lists of numbers"),)
        if not self._said:
            return found
        # What a run measured before how it was set up, and both before long tables of its parts.
        said = sorted(self._said, key=lambda one: not _is_measured(one[0], self._units))
        table = SummaryTable(("said once", "value"), tuple(said))
        return (table, *found) if _is_measured(said[0][0], self._units) else (*found, table)


def _is_measured(name: str, units: Mapping[str, Unit]) -> bool:
    last = name.rpartition(".")[2]
    if _SET.search(name):
        return False
    return last in units or unit_of_key(last) is not UNKNOWN or _MEASURED.search(last) is not None


def _alike(values: list[dict[str, Any]]) -> bool:
    """Whether records are of one kind: they share most keys, and the keys hold scalars."""
    if len(values) < 2:
        return False
    every = set().union(*values[:_MOST_NAMED])
    shared = set(values[0]).intersection(*values[1:_MOST_NAMED])
    scalar = any(number_of(value) is not None for value in values[0].values())
    return bool(every) and scalar and len(shared) >= _ALIKE * len(every)


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else str(key)


def _shown(number: float) -> str:
    return f"{number:.0f}" if number == int(number) and abs(number) < 1e9 else f"{number:.5g}"


def keys_of(document: Any) -> Iterator[str]:
    """Some names that a document begins with, to say what it is."""
    record = document[0] if isinstance(document, list) and document else document
    if isinstance(record, dict):
        yield from (str(key)[:40] for key in list(record)[:6])


__all__ = ["Found", "keys_of"]
