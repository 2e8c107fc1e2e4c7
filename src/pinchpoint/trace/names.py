"""A pool of interned strings: tables hold positions, the trace holds the text once."""

from collections.abc import Callable, Iterable

import numpy as np

from pinchpoint.trace.arrays import Mask, Rows
from pinchpoint.trace.table import Table, once_per_table
from pinchpoint.trace.trace import Trace


class Names:
    """Grows while a trace is built; ``tuple(names)`` is what the trace keeps."""

    def __init__(self, initial: Iterable[str] = ()) -> None:
        self._text: list[str] = []
        self._position: dict[str, int] = {}
        for text in initial:
            self.id_of(text)

    def id_of(self, text: str) -> int:
        """Position of ``text``, added if it is new."""
        position = self._position.get(text)
        if position is None:
            position = self._position[text] = len(self._text)
            self._text.append(text)
        return position

    def ids_of(self, texts: Iterable[str]) -> list[int]:
        """Positions of several texts."""
        known, id_of = self._position, self.id_of
        return [known[text] if text in known else id_of(text) for text in texts]

    def __len__(self) -> int:
        return len(self._text)

    def __getitem__(self, position: int) -> str:
        return self._text[position]

    def freeze(self) -> tuple[str, ...]:
        """The texts in order of their positions."""
        return tuple(self._text)


# ------------------------------------------------------------------------------------------------
# Rows of a table by what their names say.


def rows_named(trace: Trace, rows: Table, test: Callable[[str], bool]) -> Mask:
    """Rows whose ``name`` passes the test; shape ``(rows,)``.

    The test is asked once for each name that the table uses: of all names of a trace, most are
    shapes, grids and arguments.
    """
    used = names_used(rows)
    passes = np.zeros(len(trace.names), np.bool_)
    passes[used] = [test(trace.names[name]) for name in used.tolist()]
    if not passes.any():
        return np.zeros(len(rows), np.bool_)
    found: Mask = passes.take(rows["name"])
    return found


@once_per_table
def names_used(rows: Table) -> Rows:
    """The names of a table's rows, each once, in order."""
    return np.flatnonzero(np.bincount(rows["name"], minlength=1))
