"""Names for the arrays that pass between functions, declared once.

``Rows`` are positions in a table, as numpy's own index type, so that they index without a cast.
"""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]  # the element type is the column's, see tables.py
Ints = NDArray[np.int64]  # times in nanoseconds, bytes, counts
Rows = NDArray[np.intp]
KeptRows = NDArray[Any]  # as Rows, in 32 bits: what is kept for long, and cast where it indexes
Mask = NDArray[np.bool_]
Codes = NDArray[np.uint8]  # values of an enumeration
NameIds = NDArray[np.int32]  # positions in Trace.names
Floats = NDArray[np.float64]


def whole(values: NDArray[Any]) -> Ints:
    """Numbers of a file as integers: cut at the ends of 64 bits, and 0 for what is no number.

    Casting these leaves it to the processor what comes out.
    """
    inside = (values > -_BEYOND) & (values < _BEYOND)  # False for what is no number
    out = np.where(inside, values, 0).astype(np.int64)
    out[values >= _BEYOND] = np.iinfo(np.int64).max
    out[values <= -_BEYOND] = np.iinfo(np.int64).min
    return out


_BEYOND = 2.0**63  # the first float that 64 bits do not hold


def distinct(values: ArrayLike) -> Array:
    """The distinct values, ascending; at once where there is one, as a column of devices has.

    Sorted and compared: ``np.unique`` of NumPy 2.4 hashes first, which took 4 to 15 times as long
    for 200,000 and a million integers.
    """
    values = np.asarray(values)
    if values.dtype.kind not in "iub":  # what is no number equals nothing, itself neither
        return np.unique(values)
    if values.ndim == 1 and len(values) and values.min() == values.max():
        return values[:1]
    ordered = np.sort(values, axis=None)
    begins = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    return ordered[begins]


def of_rows(column: Array, rows: Rows) -> Array:
    """Some rows of a column; one cell for all of them where the column has one."""
    if column.strides == (0,) and len(column):
        return np.broadcast_to(column[0], rows.shape)
    return column[rows]


# ------------------------------------------------------------------------------------------------
# The distinct combinations of integer columns, for what is worked out once for each.


_MOST_COMBINATIONS = 2**62  # packed rows stay below 63 bits


def distinct_rows(*columns: Ints) -> tuple[Ints, Rows]:
    """The distinct rows in lexicographic order, one a row, and which of them each row is.

    Where few values are combined they are counted, which needs no sorting. Else each row is packed
    into one number, which sorts many times faster than rows do. Where the columns span too much for
    that, each value is replaced by its rank first; where even the ranks do, rows are sorted.
    """
    if (which := _counted(columns)) is not None:
        first = np.empty(int(which.max()) + 1, np.intp)
        first[which[::-1]] = np.arange(len(which) - 1, -1, -1)  # of equal places the last one stays
        return np.stack([c[first] for c in columns], axis=1), which
    if prod(_spans(columns)) > _MOST_COMBINATIONS:
        ranks = tuple(np.unique(c, return_inverse=True)[1].reshape(-1) for c in columns)
        if prod(_spans(ranks)) > _MOST_COMBINATIONS:
            rows, which = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
            return rows, which.reshape(-1)
        packed = _packed(ranks)
    else:
        packed = _packed(columns)
    _, first, which = np.unique(packed, return_index=True, return_inverse=True)
    return np.stack([c[first] for c in columns], axis=1), which.reshape(-1)


def _counted(columns: tuple[Ints, ...]) -> Rows | None:
    """Which of the distinct rows each row is, in lexicographic order; None where they are many."""
    rows = len(columns[0])
    number: Rows | None = None
    for column in columns:
        low, high = (int(column.min()), int(column.max())) if rows else (0, 0)
        if not rows or high - low > _CELLS_OF_A_ROW * rows:
            return None
        ranks = _ranks(column - low)
        if number is not None:
            several = int(ranks.max()) + 1
            if (int(number.max()) + 1) * several > _CELLS_OF_A_ROW * rows:
                return None
            ranks = _ranks(number * several + ranks)
        number = ranks
    return number


_CELLS_OF_A_ROW = 4  # to count in: with more, sorting is as fast


def _ranks(keys: Ints) -> Rows:
    """The rank of each of the keys, none below 0, among those that occur."""
    ranks: Rows = (np.cumsum(np.bincount(keys) > 0) - 1).take(keys)
    return ranks


def rows_in_order(*columns: Ints) -> tuple[Ints, Rows]:
    """The distinct rows in the order in which they come, and which of them each row is."""
    distinct, which = distinct_rows(*columns)
    first = np.full(len(distinct), len(which), np.int64)
    first[which[::-1]] = np.arange(len(which) - 1, -1, -1)  # of equal places the last one stays
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return distinct[order], place[which]


def _spans(columns: tuple[Ints, ...]) -> list[int]:
    return [int(c.max()) - int(c.min()) + 1 if len(c) else 1 for c in columns]


def _packed(columns: tuple[Ints, ...]) -> Ints:
    packed = np.zeros(len(columns[0]), np.int64)
    for column, span in zip(columns, _spans(columns), strict=True):
        packed = packed * span + (column - (column.min() if len(column) else 0))
    return packed
