"""Ask a recording in SQL: its tables in a DuckDB database."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from pinchpoint.cli.output import reading, show, show_json
from pinchpoint.cli.page import Redact
from pinchpoint.errors import UsageError
from pinchpoint.export.database import Limits, query
from pinchpoint.export.tabular import csv_text
from pinchpoint.importers import load
from pinchpoint.report.plain import plain
from pinchpoint.report.redact import redacted_trace

Switch = Parameter(negative="")
DEFAULT_SECONDS = 120.0  # millions of rows take a second; what takes this long will not end
LONGEST_SECONDS = 86_400.0
MOST_ROWS = 1_000_000  # each is kept as Python objects: about a gigabyte


def command(
    file: Path,
    statement: str,
    /,
    *,
    json: Annotated[bool, Switch] = False,
    csv: Annotated[bool, Switch] = False,
    timeout: float = DEFAULT_SECONDS,
    redact: Redact = False,
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
    timeout
        Seconds that the query may take.
    redact
        For passing it on: tables without folders, arguments or settings.
    """
    if not 0 < timeout <= LONGEST_SECONDS:
        raise UsageError(f"--timeout {timeout:g}: no time", hint="seconds, such as --timeout 600")
    with reading(file) as progress:
        trace = load(file, progress)
    if redact:
        trace = redacted_trace(trace)
    header, rows = query(trace, statement, Limits(timeout, None, MOST_ROWS))
    show_rows(header, rows, json=json, csv=csv)
    return 0


def show_rows(header: list[str], rows: list[tuple[object, ...]], *, json: bool, csv: bool) -> None:
    """Print the answer of a query. UsageError where it is too long to be kept."""
    if len(rows) > MOST_ROWS:
        raise UsageError(
            f"sql: more than {MOST_ROWS:,} rows",
            hint="aggregate, filter or LIMIT it; pinchpoint export --to parquet writes all",
        )
    if json:
        objects = [dict(zip(header, row, strict=True)) for row in rows]
        show_json(msgspec.json.encode(objects, enc_hook=str))
    elif csv:
        show(csv_text(header, rows))
    else:
        show(_aligned(header, rows))


def _aligned(header: list[str], rows: list[tuple[object, ...]]) -> str:
    text = [["" if value is None else plain(str(value), 60) for value in row] for row in rows]
    text = [[plain(name, 60) for name in header], *text]
    widths = [max(map(len, column)) for column in zip(*text, strict=True)]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in text)
    return "".join(line.rstrip() + "\n" for line in lines)
