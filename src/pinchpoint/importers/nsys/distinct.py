"""The distinct combinations of integer columns, for names that are made once for each."""

import numpy as np
from numpy.typing import NDArray

from pinchpoint.importers.nsys.database import Integers

_MOST_COMBINATIONS = 2**62


def distinct_rows(*columns: Integers) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """The distinct rows in lexicographic order, one a row, and which of them each row is.

    Each row is packed into one number, which sorts many times faster than rows do; columns that
    span too much for that are sorted as rows.
    """
    lows = [int(c.min()) if len(c) else 0 for c in columns]
    spans = [int(c.max()) - low + 1 if len(c) else 1 for c, low in zip(columns, lows, strict=True)]
    combinations = 1
    for span in spans:
        combinations *= span
    if combinations > _MOST_COMBINATIONS:
        rows, which = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        return rows, which.reshape(-1)
    packed = np.zeros(len(columns[0]), np.int64)
    for column, low, span in zip(columns, lows, spans, strict=True):
        packed = packed * span + (column - low)
    _, first, which = np.unique(packed, return_index=True, return_inverse=True)
    return np.stack([c[first] for c in columns], axis=1), which.reshape(-1)
