"""Columns of a table in a terminal: what fits, how wide, and what becomes of longer texts."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from pinchpoint.report.blocks import Table
from pinchpoint.report.plain import middle_cut, plain

_CELL_WIDTH = 20  # what a text column may take before other columns have their place
_LONGEST_CELL = 120  # of a first column that goes on below
_LEAST_FIRST = 18  # columns of a first cell that goes on below, whatever the others need


def columns_of(table: Table, rows: Sequence[Sequence[str]], width: int) -> list[tuple[int, bool]]:
    """Width of each leading column that fits, and whether its cells are figures."""
    heads = table.heads
    numeric = table.numeric or (False, *[True] * (len(heads) - 1))
    wanted = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    between = 1 if table.dense else 2
    if table.whole:
        room = width - sum(wanted[1:]) - between * (len(wanted) - 1)
        widths = [min(wanted[0], _LONGEST_CELL, max(room, _LEAST_FIRST)), *wanted[1:]]
    else:
        widths = _that_fit(wanted, numeric, table.least, width, between)
    return list(zip(widths, numeric, strict=False))


def _that_fit(
    wanted: list[int], numeric: Sequence[bool], least: int, width: int, between: int
) -> list[int]:
    """Text columns share what the figures leave; columns that find no room go."""
    widths = [w if n else min(w, _CELL_WIDTH) for w, n in zip(wanted, numeric, strict=True)]
    widths[0] = min(wanted[0], least)
    while len(widths) > 1 and sum(widths) + between * (len(widths) - 1) > width:
        widths.pop()
    spare = width - sum(widths) - between * (len(widths) - 1)
    for i in range(len(widths)):
        more = min(wanted[i] - widths[i], max(spare, 0))
        widths[i], spare = widths[i] + more, spare - more
    return widths


def table_lines(
    row: Sequence[str], columns: Sequence[tuple[int, bool]], table: Table
) -> Iterator[str]:
    """A row, in several lines where its first cell goes on below."""
    first, more = row[0], []
    if table.whole:
        text = middle_cut(plain(row[0], 1000), _LONGEST_CELL)
        first, *more = wrap(
            text, columns[0][0], subsequent_indent="  ", break_on_hyphens=False
        ) or [""]
    between = " " if table.dense else "  "
    cells = zip((first, *row[1:]), columns, strict=False)
    yield between.join(_cell(text, *column, table.dense) for text, column in cells).rstrip()
    yield from more


def _cell(text: str, width: int, number: bool, dense: bool) -> str:
    """Names differ at both ends, so their middles go; dense ones end in their shapes."""
    if number:
        return plain(text).rjust(width)
    return (plain(text, width) if dense else middle_cut(plain(text), width)).ljust(width)
