"""A page as plain text, at most as wide as its tables."""

from pinchpoint.report.benchmarks.page import Page, Table
from pinchpoint.report.plain import plain

_LONGEST_CELL = 60


def render(page: Page) -> str:
    """Text that ends with a newline."""
    lines = [plain(page.title)]
    lines.append(plain(f"{page.verdict}: {page.headline}" if page.verdict else page.headline))
    for table in page.tables:
        lines += ["", *_table(table)]
    if page.warnings or page.notes:
        lines.append("")
    lines += [f"warning: {plain(w)}" for w in page.warnings]
    lines += [f"note: {plain(n)}" for n in page.notes]
    if page.next_command:
        lines += ["", f"Next: {plain(page.next_command)}"]
    return "\n".join(lines) + "\n"


def _table(table: Table) -> list[str]:
    rows = [tuple(plain(cell, _LONGEST_CELL) for cell in row) for row in table.rows]
    header = (table.title, *table.header[1:])
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    return [_line(row, widths) for row in (header, *rows)]


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [row[0].ljust(widths[0])]
    cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
    return "  ".join(cells).rstrip()
