"""What readers of logs share: figures of a column, and how numbers are shown."""

from array import array
from collections.abc import Iterable, Sequence
from math import isfinite

import numpy as np

from pinchpoint.trace import SummaryTable

MOST_VALUES = 10_000_000  # of one figure: a line a second for four months
LARGEST = 1e15  # larger is no time, rate or size; sums of ten million such are finite
FIGURES = ("lines", "median", "mean", "min", "max")


class Figure:
    """Values of one quantity, as lines give them."""

    def __init__(self) -> None:
        self.values = array("d")

    def add(self, value: float) -> None:
        """One more; what no program measures is left out."""
        if isfinite(value) and abs(value) < LARGEST and len(self.values) < MOST_VALUES:
            self.values.append(value)

    def row(self, label: str) -> tuple[str, ...]:
        """A row of a table with columns ``FIGURES`` behind the label."""
        held = np.asarray(self.values)
        figures = (np.median(held), held.mean(), held.min(), held.max())
        return (label, f"{len(held):,}", *(shown(float(figure)) for figure in figures))


def figures_table(
    title: str, first: str, rows: Iterable[tuple[str, Figure]]
) -> tuple[SummaryTable, ...]:
    """One table, or none where no line gave a value."""
    filled = tuple(figure.row(label) for label, figure in rows if len(figure.values))
    return (SummaryTable((first, *FIGURES), filled, title),) if filled else ()


def said_table(what: str, rows: Sequence[tuple[str, str]]) -> tuple[SummaryTable, ...]:
    """What a log says once, or what of it was counted."""
    return (SummaryTable((what, "value"), tuple(rows)),) if rows else ()


def shown(value: float) -> str:
    """Four digits; more only before the decimal point."""
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def parsed(text: str) -> float | None:
    """A number as programs print it; None for what only looks like one."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if isfinite(value) and abs(value) < LARGEST else None
