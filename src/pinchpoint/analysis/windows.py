"""Counting events by the windows they fall into, steps above all."""

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]


def window_of(times: Times, start_ns: Times, end_ns: Times) -> NDArray[np.intp]:
    """The window ``[start, end)`` that holds each time; ``len(start_ns)`` where none does.

    Windows are sorted and do not overlap; shape of ``times``.
    """
    which = np.searchsorted(start_ns, times, "right") - 1
    inside = (which >= 0) & (times < np.append(end_ns, 0)[which])
    found: NDArray[np.intp] = np.where(inside, which, len(start_ns))
    return found


def inside(times: Times, start_ns: Times, end_ns: Times) -> NDArray[np.bool_]:
    """Whether each time falls into any window: a mask of rows for the tables of this package."""
    return window_of(times, start_ns, end_ns) < len(start_ns)


def sum_per_window(
    times: Times, start_ns: Times, end_ns: Times, values: Times | None = None
) -> Times:
    """How many of the times, or the sum of their values, fall into each window."""
    total = np.zeros(len(start_ns) + 1, np.int64)
    np.add.at(total, window_of(times, start_ns, end_ns), 1 if values is None else values)
    return total[:-1]
