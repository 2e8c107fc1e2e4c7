"""Figures of a log of any program: what its lines call their numbers, again and again.

A key that several lines give is a series, with the unit that the line or the key spells; one that
is given once is kept where it has a unit. What no text says is not said: no meaning is guessed
from a name, but that a whole number which rises counts.
"""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pinchpoint.importers.files.units import Unit
from pinchpoint.importers.program_logs._figures import MOST_VALUES, parsed, said_table, shown
from pinchpoint.importers.program_logs._parts_of_steps import BETWEEN, load_and_step
from pinchpoint.importers.program_logs._quantities import (
    OF,
    Plans,
    Quantity,
    places,
    quantities,
)
from pinchpoint.importers.program_logs._same_lines import Load, Number, Plan, SameLines
from pinchpoint.importers.program_logs._stamps import Stamp, Stamps, said_by
from pinchpoint.importers.program_logs._step_lines import StepLines, counts, is_counter, words_of
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

LEAST = 3  # values of a series: two may differ by anything
_MOST_KEYS = 5000  # of one log; more are numbers in names
_MOST_SHOWN = 60  # rows of one table; more nobody reads on one page
_VARIANTS = 16  # names that differ in a number only: more are one series (a GPU each is not)
_DIGITS = regex(r"\d+")
# Families whose figures tell of a run, in the order of the table.
_ORDER = ("time", "rate", "bytes", "flop/s", "power", "energy", "share", "clock", "temperature")
# Not measured: what is foreseen, allowed, or wished.
_FORESEEN = regex(
    r"(?:^|[\W_])(eta|remaining|left|timeout|time_?limit|deadline|interval"
    r"|max_?(?:time|wait|seq)\w*|every|threshold|expected|budget|warm_?up_(?:ms|s|time)|sleep\w*"
    r"|lr|learning.rate|frequency|period)(?:$|[\W_])",
    2,
)
# What is measured, though no unit is said; not when something began.
_TIMED = regex(
    r"^(?!.*(?:start|end|stamp|date|begin))(?:.*[\W_])?(?:time|latency|duration|elapsed|runtime"
    r"|throughput|bandwidth|speed|speedup)(?:[\W_].*)?$",
    2,
)
# What an installer fetches and what is compiled tells nothing of a run.
_FETCHED = regex(
    r"\s*(?:Downloading|Downloaded|Using cached|Collecting|Fetching|Get:\d|━|.{0,40}━━)"
    r"|\s*\[ *\d+(?:/\d+|%)\] (?:Building|Linking|Compiling|Generating|Built target"
    r"|(?:\S*/)?(?:nvcc|hipcc|cc|gcc|clang|[gc]\+\+|clang\+\+|ld|ar|cmake|ccache)(?:-\d+)? )"
)
_RECORD_LINE = regex(r"\s*\{'\w[^{}]{0,2000}\}\s*$")  # {'loss': 2.5, 'epoch': 0.1}
_RECORD = "record it: pinchpoint run"
_LONGEST_S = 3e8  # ten years: what is longer is a time since 1970
_CUMULATIVE = 8  # values that only rise: by chance one log of 8! = 40,000 would have them


class _Series(NamedTuple):
    """Values under one key and unit."""

    key: str
    unit: Unit
    values: "array[float]"
    of: set[float]

    def held(self) -> NDArray[np.float64]:
        return np.asarray(self.values)


class AnyFigures:
    """Series, single values and steps of a log in words of its own."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], _Series] = {}
        self._stamps = Stamps()
        self._plans: Plans = {}
        self._same = SameLines()
        self._steps = StepLines()
        self._values = self._records = 0
        self._loader: dict[tuple[str, str, str], list[float]] = {}

    def line(self, text: str) -> str:
        """Looks at one line of the log."""
        if not text or text.isspace():
            return ""
        stamp, rest = self._stamps.of(text)
        said = said_by(rest)
        found = quantities(said, self._plans)
        if _FETCHED.match(said):
            found = []
        elif len(found) > 1 and _RECORD_LINE.match(said):
            self._records += 1
        elif not any(one.unit.family or is_counter(one) or speaks(one) for one in found):
            found = []  # names and settings; May 21, in prose
        for one in found:
            self._add(one)
        if len(found) > 1 and (load := self._load_of(found)) is not None:
            load.add([one.value for one in found])
        self._steps.line(stamp, said, found)
        return ""

    def again(self, text: str) -> bool:
        """Looks at a line that differs from an earlier one in its digits only; False where that is
        not enough to know what it says."""
        plan = self._same.of(text)
        full = self._values >= MOST_VALUES
        if plan is None or (not full and self._values + len(plan.numbers) > MOST_VALUES):
            return False
        stamp = None
        if plan.stamp is not None and (stamp := self._stamps.at(plan.stamp, text)) is None:
            return False
        values = []
        for number in plan.numbers:
            value = parsed(text[number.begin : number.end])
            if value is None:
                return False
            values.append(value * number.many)
        if plan.times and not any(abs(values[at]) < _LONGEST_S for at in plan.times):
            return False
        counters = []
        for number, value in zip(plan.numbers, values, strict=True):
            if not full:
                number.values.append(value * number.scale)
            if number.counts is not None:
                counters.append((number.counts, value))
        self._values += 0 if full else len(values)
        self._records += plan.is_record
        if plan.load is not None:
            plan.load.add(values)
        self._steps.seen(stamp, counters, plan.words)
        return True

    def has_room(self) -> bool:
        """Whether how one more line is to be read would be kept."""
        return self._same.has_room()

    def remember(self, text: str) -> None:
        """How lines like this one, which was just looked at, are to be read."""
        if not self._same.is_new(text):
            return
        stamp, rest = self._stamps.of(text)
        places_of_stamp = self._stamps.places() if stamp is not None else None
        said = said_by(rest).lstrip()
        held = places(said)
        if held is None or not text.endswith(said):
            return
        if places_of_stamp and not places_of_stamp.spans:
            return  # seconds since 1970
        found, opened = held
        ones = [place.one for place in found]
        tells = any(one.unit.family or is_counter(one) for one in ones)
        times = () if tells else tuple(at for at, one in enumerate(ones) if _is_of(_TIMED, one.key))
        is_record = len(ones) > 1 and _RECORD_LINE.match(said) is not None
        if _FETCHED.match(said) or not (tells or times or is_record):
            found, ones, times, is_record = [], [], (), False
        begin, numbers = len(text) - len(said), []
        for place, one in zip(found, ones, strict=True):
            series = self._series.get((one.key, one.unit.family))
            if series is None:
                return  # of too many names, or its value tells nothing
            scale, counts_it = one.unit.scale / series.unit.scale, one if is_counter(one) else None
            span = place.begin + begin, place.end + begin
            numbers.append(Number(*span, place.many, scale, series.values, counts_it))
        words = words_of(said, [n.counts for n in numbers if n.counts is not None])
        plan = Plan(
            places_of_stamp, tuple(numbers), words, () if is_record else times, is_record,
            self._load_of(ones),
        )  # fmt: skip
        self._same.keep(text, begin, [(a + begin, b + begin) for a, b in opened], plan)

    def _load_of(self, ones: Sequence[Quantity]) -> Load | None:
        """Which numbers of a line are a step's time and, in the same unit, that of its data."""
        found = load_and_step([one.key for one in ones])
        if found is None:
            return None
        load, step = ones[found.load], [ones[at] for at in found.step]
        if any(one.unit.family != load.unit.family for one in step):
            return None
        name = (load.key, found.of, load.unit.family)
        if name not in self._loader and len(self._loader) >= _MOST_KEYS:
            return None
        sums = self._loader.setdefault(name, [0.0, 0.0, 0.0])
        scales = tuple((at, ones[at].unit.scale) for at in found.step)
        return Load(sums, found.load, load.unit.scale, scales)

    def part_ended(self) -> None:
        """What follows was printed by another cell: no time between the two is of a step."""
        self._steps.part_ended()

    def _add(self, one: Quantity) -> None:
        name = (one.key, one.unit.family)
        series = self._series.get(name)
        if series is None:
            if len(self._series) >= _MOST_KEYS:
                name = (_DIGITS.sub("#", one.key), one.unit.family)
                if name not in self._series and len(self._series) >= 2 * _MOST_KEYS:
                    return
            series = self._series.setdefault(name, _Series(name[0], one.unit, array("d"), set()))
        if self._values < MOST_VALUES:
            self._values += 1
            series.values.append(one.value * one.unit.scale / series.unit.scale)
            if one.of and len(series.of) < _VARIANTS:
                series.of.add(one.of)

    def repeats(self) -> bool:
        """Whether lines give a figure with a unit again and again."""
        often = (s for s in self._series.values() if len(s.values) >= LEAST and not _set(s))
        return any(_tells(s) and not _FORESEEN.search(s.key) for s in often)

    def counts_steps(self) -> bool:
        """Whether lines count, or are records, and give other values with it."""
        often = (s for s in self._series.values() if len(s.values) >= LEAST)
        said = self._steps.found() or self._records >= LEAST
        return said and any(_changes(s) and not _is_count(s) for s in often)

    def measured(self) -> bool:
        """Whether anything is said once that has a unit which tells of a run."""
        return any(s.unit.family not in ("share", "temperature", "clock") for s in self._named())

    def _named(self) -> Iterator[_Series]:
        return (
            series for series in self._series.values()
            if _tells(series) and not _FORESEEN.search(series.key) and not _is_date(series)
        )  # fmt: skip

    def tables(self) -> tuple[SummaryTable, ...]:
        """Series by unit, values without one, what is said once, and what steps took."""
        all_series = list(_joined(self._series.values()))
        often = [s for s in all_series if len(s.values) >= LEAST and not _FORESEEN.search(s.key)]
        with_unit = sorted((s for s in often if s.unit.family and not _set(s)), key=_place)
        without = [s for s in often if not s.unit.family and _changes(s) and not _is_count(s)]
        once = [s for s in self._named() if len(s.values) < LEAST]
        same = [s for s in often if not _changes(s) and not _is_date(s)]
        found: tuple[SummaryTable, ...] = ()
        rows = [_figures(s) for s in with_unit if not _goes_on(s)]
        if rows:
            found += (
                SummaryTable(
                    ("figure", "unit", "lines", "median", "mean", "p95", "min", "max"),
                    _cut(rows, 8),
                    "what the program prints again and again",
                ),
            )
        steps = [*self._steps.said(), *self._shares()]
        timed = any(s.unit.family.startswith("time") or "/" in s.unit.name for s in often)
        if steps and not timed and not any("time" in what for what, _ in steps):
            steps.append(("how long one took", f"not said; {_RECORD}"))
        found += said_table("what lines say of steps", steps)
        records = self._records >= LEAST
        shown_without = bool(without) and (
            bool(with_unit) or records or self._steps.found() or any(map(_tells, without))
        )
        if shown_without:
            rows = [_ends(s) for s in without]
            columns = ("value without a unit", "lines", "median", "first", "last", "min", "max")
            found += (
                SummaryTable(columns, _cut(rows, len(columns)), "values whose unit is not said"),
            )
        on = [(f"{s.key} goes on, from", f"{_one(s, 0)} to {_one(s, -1)}") for s in with_unit
              if _goes_on(s)]  # fmt: skip
        said = [(s.key, " and ".join(_one(s, n) for n in range(len(s.values)))) for s in once]
        found += said_table("said once", [*on, *said][:_MOST_SHOWN])
        if rows or shown_without:
            return found
        # Nothing differs from line to line: what does not is all that the log says.
        alike = [(s.key, f"{_one(s, 0)} ({len(s.values):,} lines)") for s in same]
        return found + said_table("the same in all lines", alike[:_MOST_SHOWN])

    def _shares(self) -> Iterator[tuple[str, str]]:
        for (load, step, unit), (loaded, all_, lines) in self._loader.items():
            if lines >= LEAST and 0 <= loaded <= all_:
                if_same = "" if unit else ", if all have one unit, which no line says"
                share = f"{100 * loaded / all_:.1f} %{if_same}"
                parts = step.split(BETWEEN)
                yield (f"{load} of {step}" if len(parts) == 1 else f"{load} of its step"), share
                if len(parts) > 1:
                    yield "the step, added up", ", ".join(parts)


def _joined(all_series: Iterable[_Series]) -> Iterator[_Series]:
    """Names that differ in a number only are one series, where there are too many of them."""
    groups: dict[tuple[str, str], list[_Series]] = {}
    for series in all_series:
        groups.setdefault((_DIGITS.sub("#", series.key), series.unit.family), []).append(series)
    for (key, _), group in groups.items():
        if len(group) <= _VARIANTS:
            yield from group
            continue
        unit, values = group[0].unit, array("d")
        for series in group:
            values.extend(value * series.unit.scale / unit.scale for value in series.values)
        yield _Series(key, unit, values, set())


def _place(series: _Series) -> int:
    family = series.unit.family
    if family in _ORDER:
        return _ORDER.index(family)
    return 0 if family.startswith("time") else 1


def _changes(series: _Series) -> bool:
    held = series.held()
    return bool(held.min() < held.max())


def _set(series: _Series) -> bool:
    """A time or size that is the same whole number in all lines: a setting; or a time of day."""
    held = series.held()
    if _is_date(series):
        return True
    same = series.unit.family in ("time", "bytes", "power") and not _changes(series)
    return bool(same and held[0] == np.floor(held[0]))


def _is_date(series: _Series) -> bool:
    return series.unit.family == "time" and series.values[0] * series.unit.scale > _LONGEST_S


def _is_count(series: _Series) -> bool:
    return series.key == OF or counts(series.held())


def _goes_on(series: _Series) -> bool:
    """A time since the beginning: it only rises, and no figure of its values means anything."""
    held = series.held()
    if series.unit.family != "time" or len(held) < _CUMULATIVE:
        return False
    return bool((np.diff(held) >= 0).all() and held[-1] > 2 * held[0] and held[-1] > held[0])


def _figures(series: _Series) -> tuple[str, ...]:
    held = series.held()
    figures = (np.median(held), held.mean(), np.percentile(held, 95), held.min(), held.max())
    label = series.unit.name if series.key == f"({series.unit.name})" else series.key
    return (label, series.unit.name, f"{len(held):,}", *(shown(float(f)) for f in figures))


def _ends(series: _Series) -> tuple[str, ...]:
    held = series.held()
    figures = (np.median(held), held[0], held[-1], held.min(), held.max())
    return (series.key, f"{len(held):,}", *(shown(float(f)) for f in figures))


def _tells(series: _Series) -> bool:
    """Whether a series has a unit, or a name of what is timed."""
    if series.unit.family:
        return True
    return _TIMED.search(series.key) is not None and abs(series.values[0]) < _LONGEST_S


def speaks(one: Quantity) -> bool:
    """Whether a number without a unit is called as what is timed."""
    return _is_of(_TIMED, one.key) and abs(one.value) < _LONGEST_S


@lru_cache(maxsize=_MOST_KEYS)
def _is_of(names: re.Pattern[str], key: str) -> bool:
    return names.search(key) is not None


def _one(series: _Series, at: int) -> str:
    return f"{shown(series.values[at])} {series.unit.name or '(unit not said)'}"


def _cut(rows: list[tuple[str, ...]], width: int) -> tuple[tuple[str, ...], ...]:
    if len(rows) <= _MOST_SHOWN:
        return tuple(rows)
    left = (f"{len(rows) - _MOST_SHOWN:,} more", *[""] * (width - 1))
    return (*rows[:_MOST_SHOWN], left)


__all__ = ["AnyFigures", "Stamp"]
