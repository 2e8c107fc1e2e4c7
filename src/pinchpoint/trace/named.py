"""Rows of a table by what their names say."""

from collections.abc import Callable

import numpy as np

from pinchpoint.trace.arrays import Mask
from pinchpoint.trace.table import Table
from pinchpoint.trace.trace import Trace


def rows_named(trace: Trace, rows: Table, test: Callable[[str], bool]) -> Mask:
    """Rows whose ``name`` passes the test; shape ``(rows,)``.

    The test is asked once for each name that the table uses: of all names of a trace, most are
    shapes, grids and arguments.
    """
    used = np.flatnonzero(np.bincount(rows["name"], minlength=1))
    passes = np.zeros(len(trace.names), np.bool_)
    passes[used] = [test(trace.names[name]) for name in used.tolist()]
    found: Mask = passes[rows["name"]]
    return found
