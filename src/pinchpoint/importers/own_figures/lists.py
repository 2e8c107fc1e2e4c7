"""Lists of numbers in text: a row of them behind its label, one row alone, one column under a name.

Values of one line belong together there; as columns of a table they would be mixed with those of
other lines.
"""

from array import array
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from pinchpoint.importers.files.units import unit_of_key
from pinchpoint.importers.own_figures.records import FIGURES, number_of
from pinchpoint.importers.program_logs._figures import MOST_VALUES, shown
from pinchpoint.importers.telemetry._samples import LONGEST_LINE, lines
from pinchpoint.regex import regex
from pinchpoint.trace import SummaryTable

_LOOKED_AT = 60  # lines by which the form is told
_ALIKE = 0.9  # of them
_LEAST = 3  # numbers of a list: two may differ by anything
_LONG = 15  # numbers of a row: more than a table of a page has columns
_MOST_SHOWN = 60  # lists; more nobody reads on one page
_NAME = regex(r"[^\W\d][\w ./()\[\]%µ-]{0,59}$")
_DELIMITERS = regex(r"[,;\t]")


def are_lists(path: Path) -> bool:
    """Whether a text is lists of numbers in one of these forms."""
    return _form(path) is not None


def _form(path: Path) -> str | None:
    head = [line for line in islice(lines(path), _LOOKED_AT) if line.strip()]
    if not head:
        return None
    rows = [_row(line) for line in head]
    first = rows[0]
    if len(rows) == 1 and first is not None and not first[0] and len(first[1]) >= _LEAST:
        return "rows"
    if first is None:
        named = _NAME.match(head[0].strip()) is not None
        below = [row for row in rows[1:] if row is not None and not row[0]]
        if named and len(rows) == 2 and len(below) == 1 and len(below[0][1]) >= _LEAST:
            return "named"
        alone = sum(len(row[1]) == 1 for row in below)
        column = named and alone >= _LEAST and alone >= _ALIKE * (len(rows) - 1)
        return "named" if column else None
    labelled = sum(row is not None and bool(row[0]) and len(row[1]) >= _LONG for row in rows)
    return "rows" if labelled >= max(2, _ALIKE * len(rows)) else None


def _row(line: str) -> tuple[str, list[float]] | None:
    """The label of a line, empty where it has none, and its numbers; None for anything else."""
    if len(line) >= LONGEST_LINE:
        return None  # cut within a number
    cells = [cell.strip() for cell in _DELIMITERS.split(line.strip().rstrip(",;"))]
    label = "" if number_of(cells[0]) is not None else cells.pop(0)
    numbers = [number_of(cell) for cell in cells]
    held = [number for number in numbers if number is not None]
    return (label, held) if held and len(held) == len(cells) else None


def lists_table(path: Path) -> tuple[SummaryTable, ...]:
    """Figures of each list; how many are left out, as their numbers are all the same."""
    found: list[tuple[str, ...]] = []
    same = others = 0
    for name, values in _lists(path, _form(path) or ""):
        held = np.asarray(values)
        if not len(held):
            others += 1
        elif held.min() == held.max():
            same += 1
        else:
            figures = (np.median(held), held.mean(), np.percentile(held, 95), held.min(),
                       held.max())  # fmt: skip
            unit = unit_of_key(name).name or "not said"
            cells = (shown(float(figure)) for figure in figures)
            found.append((name or "no name", unit, f"{len(held):,}", *cells))
    if not found:
        return ()
    table = SummaryTable(("list", "unit", "values", *FIGURES[3:]), tuple(found[:_MOST_SHOWN]),
                         "lists of numbers")  # fmt: skip
    left = (
        ("lists whose numbers are all the same", same),
        ("lines that are no list", others),
        ("more lists", max(len(found) - _MOST_SHOWN, 0)),
    )
    said = tuple((what, f"{number:,}") for what, number in left if number)
    return (table, *((SummaryTable(("left out", "number"), said),) if said else ()))


def _lists(path: Path, form: str) -> Iterator[tuple[str, "array[float]"]]:
    """Each list of the file by its name; an empty one for a line that is none."""
    name, column, labelled = "", array("d"), False
    for line in lines(path):
        if not line.strip():
            continue
        row = _row(line)
        if form == "rows":
            label, numbers = row or ("", [])
            labelled |= bool(label)
            # the end of a line that was too long has no label
            yield label, array("d", numbers if label or not labelled else [])
        elif row is None:
            name = name or line.strip()
        elif len(column) < MOST_VALUES:
            column.extend(row[1])
    if form == "named":
        yield name, column


__all__ = ["are_lists", "lists_table"]
