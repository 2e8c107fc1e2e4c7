"""Ask a recording in SQL: its tables in a DuckDB database."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from pinchpoint.cli.output import show
from pinchpoint.cli.progress import reading
from pinchpoint.importers import load
from pinchpoint.report.plain import plain
from pinchpoint.report.ways_out.database import query
from pinchpoint.report.ways_out.tabular import csv_text

Switch = Parameter(negative="")


def command(
    file: Path,
    statement: str,
    /,
    *,
    json: Annotated[bool, Switch] = False,
    csv: Annotated[bool, Switch] = False,
) -> int:
    """Run one query, such as: SELECT name, sum(duration_ns) FROM device_ops GROUP BY ALL.

    The tables are described in docs/reference/tables.md. Needs DuckDB (the extra sql).

    Parameters
    ----------
    file
        A recording of any known format, or a run folder.
    statement
        The query.
    json
        A list of objects.
    csv
        Comma-separated values.
    """
    with reading(file) as progress:
        trace = load(file, progress)
    header, rows = query(trace, statement)
    if json:
        objects = [dict(zip(header, row, strict=True)) for row in rows]
        show(msgspec.json.encode(objects, enc_hook=str).decode() + "\n")
    elif csv:
        show(csv_text(header, rows))
    else:
        show(_aligned(header, rows))
    return 0


def _aligned(header: list[str], rows: list[tuple[object, ...]]) -> str:
    text = [["" if value is None else plain(str(value), 60) for value in row] for row in rows]
    text = [[plain(name, 60) for name in header], *text]
    widths = [max(map(len, column)) for column in zip(*text, strict=True)]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in text)
    return "".join(line.rstrip() + "\n" for line in lines)
