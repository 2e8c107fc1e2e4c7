"""Tables as CSV, with unrounded values."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from pinchpoint.report.documents.report import Report, TableColumn
from pinchpoint.report.plain import one_line

_BEGIN_A_FORMULA = ("=", "+", "-", "@")  # OWASP, CSV injection


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A header and rows; an unknown value is an empty cell.

    Text is one printable line. Text that a spreadsheet would take for a formula gets an apostrophe
    in front: names come from the recorded program, and formulas can run commands.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_cell, header))
    writer.writerows(map(_cell, row) for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = one_line(value)
    return f"'{text}" if text.lstrip().startswith(_BEGIN_A_FORMULA) else text


def csv_tables(report: Report) -> dict[str, str]:
    """Each table of the report by its id; times in ns, sizes in bytes, shares as ratios."""
    return {
        id_: csv_text([_with_unit(column) for column in table.columns], table.rows)
        for id_, table in report.tables.items()
    }


def _with_unit(column: TableColumn) -> str:
    """The id of a column, which mostly ends in its unit; else with the unit behind it."""
    unit = column.unit.partition(" ")[0]
    told = unit in ("", "count", column.id) or column.id.endswith(f"_{unit}")
    return column.id if told else f"{column.id} ({column.unit})"
