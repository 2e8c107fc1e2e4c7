"""How the rows of an answer become a table of the document."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pinchpoint.report.document import ResultTable, TableColumn

MOST_ROWS = 100  # of a table in the document; how many are left out is said
LONGEST_NAME = 1000  # characters; C++ names of kernels are long, and hostile ones longer

Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column and how its value is taken from a row; the most important columns first."""

    id: str
    label: str
    unit: str
    value: Callable[[Row], Any]


def result_table(
    id_: str, title: str, columns: Sequence[Column[Row]], rows: Sequence[Row], note: str = ""
) -> ResultTable:
    """The first rows under their columns, and how many are left out."""
    shown = rows[:MOST_ROWS]
    return ResultTable(
        id=id_,
        title=title,
        columns=tuple(TableColumn(id=c.id, label=c.label, unit=c.unit) for c in columns),
        rows=tuple(tuple(_bounded(c.value(row)) for c in columns) for row in shown),
        note=note,
        rows_left_out=len(rows) - len(shown),
    )


def _bounded(value: Any) -> Any:
    return value[:LONGEST_NAME] if isinstance(value, str) else value
