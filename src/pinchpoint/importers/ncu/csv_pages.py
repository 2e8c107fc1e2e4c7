"""``ncu --csv``: the raw page (a column a metric) and the details page (a row a metric).

Columns are found by the header, which has changed with every version. Lines around and between
the rows (``==PROF==``, the program's own output) are noise. Rows are ragged by nature on the
details page; a row that ends before its value is cut off, counted and left out.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from pathlib import Path

from pinchpoint.errors import UnreadableFile
from pinchpoint.importers.ncu.display_names import metric_of
from pinchpoint.importers.ncu.launch import (
    Launch,
    Launches,
    RuleResult,
    decimal_sign,
    is_nothing,
    number,
    triple,
)

_ABOUT = {
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context",
    "Stream", "Block Size", "Grid Size", "Device", "CC", "Section Name", "Metric Name",
    "Metric Unit", "Metric Value", "Rule Name", "Rule Type", "Rule Description",
    "Estimated Speedup Type", "Estimated Speedup", "Body Item Label",
}  # fmt: skip
_LONGEST_FIELD_BYTES = 4 * 1024**2  # demangled names reach kilobytes
_LOCALE_SAMPLE_CELLS = 20_000  # the decimal sign shows in the first launches

Row = dict[str, str]


def looks_like_csv(text: str) -> bool:
    """Whether a line of the text is a header of ``ncu --csv``."""
    return any(_is_header(line) for line in text.splitlines())


def read_csv(path: Path) -> Launches:
    """All launches of a page, or of several pages in one file."""
    csv.field_size_limit(_LONGEST_FIELD_BYTES)
    launches: list[Launch] = []
    cut = 0
    for header, rows in _pages(path):
        page = [dict(zip(header, cells, strict=False)) for cells in rows]
        if "Metric Name" in header:
            found, broken = _details(page, header)
        else:
            found, broken = _raw(page, header)
        launches += found
        cut += broken
    return Launches(tuple(launches), cut)


def _is_header(line: str) -> bool:
    bare = line.lstrip("\ufeff")
    return bare.startswith(('"ID","', '"ID";"')) and "Kernel Name" in bare


def _pages(path: Path) -> Iterator[tuple[list[str], list[list[str]]]]:
    with io.TextIOWrapper(path.open("rb"), "utf-8", "replace", newline="") as file:
        header: list[str] | None = None
        rows: list[list[str]] = []
        delimiter = ","
        try:
            for cells in _records(file):
                line = cells[0]
                if _is_header(line):
                    if header is not None:
                        yield header, rows
                    delimiter = line.lstrip("\ufeff")[4]
                    header, rows = _cells(line.lstrip("\ufeff"), delimiter), []
                elif header is not None:
                    rows.append(_cells(line, delimiter))
        except csv.Error as error:
            raise UnreadableFile(f"{path}: damaged CSV ({error})", hint="copy it again") from None
        if header is not None:
            yield header, rows


def _records(lines: Iterable[str]) -> Iterator[list[str]]:
    """Whole records as text: a quoted field may go over several lines, noise is dropped."""
    pending = ""
    for line in lines:
        if not pending and not line.lstrip("\ufeff").startswith('"'):
            continue
        pending += line
        if len(pending) > _LONGEST_FIELD_BYTES:
            raise csv.Error("a quote is never closed")
        if pending.count('"') % 2 == 0:
            yield [pending]
            pending = ""
    if pending:
        yield [pending]


def _cells(record: str, delimiter: str) -> list[str]:
    return next(csv.reader([record.rstrip("\r\n")], delimiter=delimiter), [])


def _details(page: list[Row], header: list[str]) -> tuple[list[Launch], int]:
    launches: dict[tuple[str, str], Launch] = {}
    values = [row["Metric Value"] for row in page if row.get("Metric Value")]
    decimal = decimal_sign(values[:_LOCALE_SAMPLE_CELLS])
    cut = 0
    for row in page:
        if not row.get("ID", "").isdigit():
            continue
        if row.get("Metric Value") is None:
            cut += 1
            continue
        key = (row.get("Process ID", ""), row["ID"])
        launch = launches.get(key)
        if launch is None:
            launch = launches[key] = _launch(row)
        if row.get("Metric Name"):
            metric = metric_of(row.get("Section Name", ""), row["Metric Name"])
            _add(launch, metric, row["Metric Value"], row.get("Metric Unit", ""), decimal)
        elif row.get("Rule Name"):
            launch.rules.append(_rule(row, decimal))
    return list(launches.values()), cut


def _rule(row: Row, decimal: str) -> RuleResult:
    return RuleResult(
        row["Rule Name"],
        row.get("Section Name", ""),
        row.get("Rule Type", ""),
        row.get("Rule Description", ""),
        row.get("Estimated Speedup Type") or None,
        number(row.get("Estimated Speedup", ""), decimal),
    )


def _raw(page: list[Row], header: list[str]) -> tuple[list[Launch], int]:
    metrics = [c for c in header if c not in _ABOUT and "_Range:" not in c]
    units: Row = {}
    if page and not page[0].get("ID", "").strip():
        units, page = page[0], page[1:]
    rows = [row for row in page if row.get("ID", "").isdigit()]
    cells = [row[m] for row in rows[:20] for m in metrics if row.get(m)]
    decimal = decimal_sign(cells[:_LOCALE_SAMPLE_CELLS])
    launches, cut = [], 0
    for row in rows:
        cut += len(row) < len(header)
        launch = _launch(row)
        for metric in metrics:
            if metric in row:
                _add(launch, metric, row[metric], units.get(metric, ""), decimal)
        launches.append(launch)
    return launches, cut


def _launch(row: Row) -> Launch:
    capability = row.get("CC", "").replace(",", ".").split(".")
    return Launch(
        row.get("Kernel Name", ""),
        triple(row.get("Grid Size", "")),
        triple(row.get("Block Size", "")),
        _integer(row.get("Context")),
        _integer(row.get("Stream")),
        _integer(row.get("Device")) or 0,
        (int(capability[0]), int(capability[1]))
        if len(capability) == 2 and all(p.isdigit() and len(p) < 4 for p in capability)
        else None,
        row.get("Process Name") or None,
        row.get("Process ID") or None,
    )


def _add(launch: Launch, metric: str, text: str, unit: str, decimal: str) -> None:
    if (value := number(text, decimal)) is not None:
        launch.numbers[metric] = (value, unit)
    elif not is_nothing(text):
        launch.texts[metric] = text


def _integer(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() and len(text) < 10 else None
