"""Tables as CSV, with unrounded values."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from pinchpoint.report.document import Report


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A header and rows; an unknown value is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def csv_tables(report: Report) -> dict[str, str]:
    """Each table of the report by its id; times in ns, sizes in bytes, shares as ratios."""
    return {
        id_: csv_text([column.id for column in table.columns], table.rows)
        for id_, table in report.tables.items()
    }
