"""A page as plain text that fits into 80 columns: long first cells and sentences go on below."""

from collections.abc import Iterator
from textwrap import wrap

from pinchpoint.report.benchmarks.page import Page, Table
from pinchpoint.report.plain import middle_cut, plain

WIDTH = 80
_LONGEST_CELL = 120  # of the first column; it may take several lines
_LONGEST_FIGURE = 40
_LEAST_FIRST = 18  # columns of the first cell, whatever the others need
_LONGEST_TEXT = 1000


def render(page: Page, width: int = WIDTH) -> str:
    """Text that ends with a newline."""
    lines = _wrapped(page.title, width)
    lines += _wrapped(f"{page.verdict}: {page.headline}" if page.verdict else page.headline, width)
    for table in page.tables:
        lines += ["", *_table(table, width)]
    if page.warnings or page.notes:
        lines.append("")
    for word, texts in (("warning", page.warnings), ("note", page.notes)):
        for text in texts:
            lines += _wrapped(f"{word}: {text}", width, indent="  ")
    if page.next_command:
        lines += ["", f"Next: {plain(page.next_command, _LONGEST_TEXT)}"]  # to be copied whole
    return "\n".join(lines) + "\n"


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return wrap(plain(text, _LONGEST_TEXT), width, subsequent_indent=indent, break_on_hyphens=False)


def _table(table: Table, width: int) -> Iterator[str]:
    header = (table.title, *table.header[1:])
    rows = [header, *(tuple(_figures(row)) for row in table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    room = max(width - sum(widths[1:]) - 2 * len(widths[1:]), _LEAST_FIRST)
    widths[0] = min(widths[0], room)
    for row in rows:
        first, *more = wrap(row[0], widths[0], subsequent_indent="  ") or [""]
        yield _line((first, *row[1:]), widths)
        yield from more


def _figures(row: tuple[str, ...]) -> Iterator[str]:
    yield middle_cut(plain(row[0], _LONGEST_TEXT), _LONGEST_CELL)
    yield from (plain(cell, _LONGEST_FIGURE) for cell in row[1:])


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [row[0].ljust(widths[0])]
    cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
    return "  ".join(cells).rstrip()
