"""How the rows of an answer become a table of the document."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from pinchpoint.frozen import dataclass
from pinchpoint.report.documents.clock import AS_RECORDED
from pinchpoint.report.documents.report import ResultTable, TableColumn
from pinchpoint.report.quantity import quantity

MOST_ROWS = 200  # of a table in the document; how many are left out is said
FULL_NAME = "full_name"  # the column of what short names in the first one stand for
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
    id_: str,
    title: str,
    columns: Sequence[Column[Row]],
    rows: Sequence[Row],
    note: str = "",
    clock: str = AS_RECORDED,
) -> ResultTable:
    """The first rows under their columns, and how many are left out."""
    shown = rows[:MOST_ROWS]
    timed = any(column.unit.partition(" ")[0] == "ns" for column in columns)
    return ResultTable(
        id=id_,
        title=title,
        columns=tuple(TableColumn(id=c.id, label=c.label, unit=c.unit) for c in columns),
        rows=tuple(tuple(_bounded(c.value(row)) for c in columns) for row in shown),
        note=note,
        rows_left_out=len(rows) - len(shown),
        clock=clock if timed else "",
    )


def _bounded(value: Any) -> Any:
    return value[:LONGEST_NAME] if isinstance(value, str) else value


def titled(table: ResultTable) -> str:
    """Its title with the clock of its times: ``Kernels, as recorded``."""
    return f"{table.title}, {table.clock}" if table.clock else table.title


def shown_value(table: ResultTable, row: Sequence[Any], position: int) -> str:
    """A cell for people: in the unit of its column, or of its row where rows have units."""
    value, unit = row[position], table.columns[position].unit
    if value is None or isinstance(value, str):
        return value or ""
    own = next((i for i, column in enumerate(table.columns) if column.id == "unit"), None)
    if not unit and own is not None:
        unit = str(row[own] or "").replace("bytes/s", "bytes a second")
    return quantity(value, unit)


def numeric(table: ResultTable) -> list[bool]:
    """Which columns are of numbers, so that their digits can stand below each other."""
    return [
        bool(column.unit) or any(isinstance(row[i], (int, float)) for row in table.rows)
        for i, column in enumerate(table.columns)
    ]
