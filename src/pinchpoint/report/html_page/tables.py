"""Tables of the document as the HTML page shows them: no empty columns, long names on demand."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pinchpoint.report.documents.report import ResultTable
from pinchpoint.report.plain import middle_cut
from pinchpoint.report.tables.columns import numeric, shown_value

FULL_NAME = "full_name"  # the column whose text opens below the short name in the first one
_LONGEST_TEXT = 64  # characters of a cell before it is cut: three lines of a column
_LONGEST_WORD = 34  # characters that stay on one line; longer texts may wrap


@dataclass(frozen=True)
class Head:
    """One column: its label, how it is set, and whether only the CSV has it."""

    label: str
    css: str  # number, word (never wraps) or text
    hidden: bool


@dataclass(frozen=True)
class Cell:
    """One value, as text and as it was before it was rounded and got its unit."""

    text: str
    value: float | int | str
    full: str = ""  # what the text is short for


@dataclass(frozen=True)
class ShownTable:
    """What the template draws."""

    id: str
    title: str
    note: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left_out: int


def shown_table(table: ResultTable) -> ShownTable:
    """The table without columns that say nothing."""
    kept = [
        i for i in range(len(table.columns)) if any(row[i] not in (None, "") for row in table.rows)
    ]
    of_numbers = numeric(table)
    full = next((i for i in kept if table.columns[i].id == FULL_NAME), None)
    heads = tuple(
        Head(
            table.columns[i].label,
            "number" if of_numbers[i] else _wrapping(table, i),
            hidden=i == full,
        )
        for i in kept
    )
    rows = tuple(
        tuple(_cell(table, row, i, full if i == kept[0] else None) for i in kept)
        for row in table.rows
    )
    return ShownTable(table.id, table.title, table.note, heads, rows, table.rows_left_out)


def _wrapping(table: ResultTable, position: int) -> str:
    longest = max((len(str(row[position] or "")) for row in table.rows), default=0)
    return "text" if longest > _LONGEST_WORD else "word"


def _cell(table: ResultTable, row: Sequence[Any], position: int, full: int | None) -> Cell:
    value = row[position]
    text = shown_value(table, row, position)
    name = text if full is None else str(row[full] or "")
    if len(text) > _LONGEST_TEXT:
        text = middle_cut(text, _LONGEST_TEXT)
    return Cell(text, "" if value is None else value, "" if name == text else name)
