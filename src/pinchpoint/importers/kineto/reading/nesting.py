"""Which host row encloses which, on each thread.

The innermost row that encloses another is the one that started last among those that end no
earlier. Rows cross: a ``record_function`` range outlives the Python frame that opened it, and
rounding lets a child end after its parent. So a row that ends before a later one does is
dropped from the open rows: whatever begins later and lies inside it lies inside the later one.
"""

from typing import NamedTuple

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Array

# Times were whole microseconds until 2024; a start and a duration rounded apart differ by this.
TOLERANCE_NS = 1000
# Calls that cross so many open rows are noise of a clock; looking further would be quadratic.
MOST_CROSSED = 1000
NONE = -1  # no position of a row


Calls = tuple[Array, Array, Array]  # start, end, thread


@dataclass(frozen=True)
class Rows:
    """Host rows sorted by time, longer ones first; operators have no reason to cross."""

    start: Array
    end: Array
    thread: Array
    is_operator: Array  # uint8


class Nesting(NamedTuple):
    """The innermost enclosing row of each row and of each call; NONE where there is none."""

    parent: Array
    enclosing: Array
    crossings: int  # of operators with operators


def nest(rows: Rows, calls: Calls, threads: int) -> Nesting:
    """Find what encloses each row and each call; calls enclose nothing. Sorted like the rows."""
    opened = _Open(rows, threads)
    enclosing = [NONE] * len(calls[0])
    for call, (at, until, thread) in enumerate(zip(*(c.tolist() for c in calls), strict=True)):
        opened.push_until(at)
        enclosing[call] = opened.innermost(at, until, thread)
    opened.push_until(None)
    parent, crossings = np.array(opened.parent, np.int32), opened.crossings
    return Nesting(parent, np.array(enclosing, np.int32), crossings)


class _Open:
    """The rows that are open on each thread while time goes on, the innermost one first."""

    def __init__(self, rows: Rows, threads: int) -> None:
        self._start, self._end = rows.start.tolist(), rows.end.tolist()
        self._thread, self._is_operator = rows.thread.tolist(), rows.is_operator.tolist()
        self._top = [NONE] * threads
        self._next = 0
        self.parent = [NONE] * len(self._start)
        self.crossings = 0

    def push_until(self, time: int | None) -> None:
        """Open the rows that start up to a time."""
        last = len(self._start)
        while self._next < last and (time is None or self._start[self._next] <= time):
            self._push(self._next)
            self._next += 1

    def _push(self, row: int) -> None:
        start, end, thread = self._start[row], self._end[row], self._thread[row]
        top = self._top[thread]
        while top != NONE and (self._end[top] <= start or self._end[top] + TOLERANCE_NS < end):
            if self._end[top] > start + TOLERANCE_NS and self._is_operator[top]:
                self.crossings += self._is_operator[row]
            top = self.parent[top]
        self.parent[row] = top
        self._top[thread] = row

    def innermost(self, start: int, end: int, thread: int) -> int:
        """The innermost open row that encloses an interval."""
        top = self._top[thread]
        for _ in range(MOST_CROSSED):
            if top == NONE or (self._end[top] > start and self._end[top] + TOLERANCE_NS >= end):
                return top
            top = self.parent[top]
        return NONE
