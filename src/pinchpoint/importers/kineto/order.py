"""Rows in order of time."""

import numpy as np

from pinchpoint.trace.arrays import Array


def time_order(start: Array, duration: Array | None = None) -> Array | None:
    """The order of rows by start, longer ones first among equals, else as they stand.

    None if they are in order already. Files are nearly in order, which the merge sort behind
    ``kind="stable"`` turns into a few merges.
    """
    later = start[1:] >= start[:-1]
    if duration is not None:
        later &= (start[1:] > start[:-1]) | (duration[1:] <= duration[:-1])
    if later.all():
        return None
    order = np.argsort(start, kind="stable")
    if duration is not None:
        _longer_first(start, duration, order)
    return order


def _longer_first(start: Array, duration: Array, order: Array) -> None:
    sorted_start = start[order]
    equal = sorted_start[1:] == sorted_start[:-1]
    tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    if len(tied):
        rows = order[tied]
        order[tied] = rows[np.lexsort((rows, -duration[rows], start[rows]))]


def reordered(values: Array, order: Array | None) -> Array:
    """The values in that order."""
    return values if order is None else values[order]
