"""Which host row encloses which, on each thread.

The innermost row that encloses another is the one that started last among those that end no
earlier. Rows cross: a ``record_function`` range outlives the Python frame that opened it, and
rounding lets a child end after its parent. So a row that ends before a later one does is
dropped from the open rows: whatever begins later and lies inside it lies inside the later one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# Times were whole microseconds until 2024; a start and a duration rounded apart differ by this.
TOLERANCE_NS = 1000
# Calls that cross so many open rows are noise of a clock; looking further would be quadratic.
MOST_CROSSED = 1000
NONE = -1


Calls = tuple[Array, Array, Array]  # start, end, thread


def nest(
    start: Array, end: Array, thread: Array, calls: Calls, threads: int
) -> tuple[Array, Array]:
    """The innermost enclosing row of each row, and of each call; NONE where there is none.

    Both are sorted by time, longer ones first. ``calls`` are (start, end, thread) of rows that
    enclose nothing.
    """
    parent, enclosing = [NONE] * len(start), [NONE] * len(calls[0])
    open_row, below = [NONE] * threads, [NONE] * len(start)
    ends, row = end.tolist(), 0
    starts, owners = start.tolist(), thread.tolist()
    rows = len(starts)
    for call, (at, until, owner) in enumerate(zip(*(c.tolist() for c in calls), strict=True)):
        while row < rows and starts[row] <= at:
            _push(row, starts[row], ends, owners[row], open_row, below, parent)
            row += 1
        enclosing[call] = _innermost(at, until, ends, open_row[owner], below)
    for last in range(row, rows):
        _push(last, starts[last], ends, owners[last], open_row, below, parent)
    return np.array(parent, np.int32), np.array(enclosing, np.int32)


def _push(
    row: int,
    at: int,
    ends: list[int],
    owner: int,
    open_row: list[int],
    below: list[int],
    parent: list[int],
) -> None:
    top, until = open_row[owner], ends[row]
    while top != NONE and (ends[top] <= at or ends[top] + TOLERANCE_NS < until):
        top = below[top]
    parent[row] = below[row] = top
    open_row[owner] = row


def _innermost(at: int, until: int, ends: list[int], top: int, below: list[int]) -> int:
    for _ in range(MOST_CROSSED):
        if top == NONE or (ends[top] > at and ends[top] + TOLERANCE_NS >= until):
            return top
        top = below[top]
    return NONE
