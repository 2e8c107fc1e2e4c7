"""Time zero, and the rows of each lane in order of time."""

from dataclasses import field
from typing import Any

import numpy as np

from pinchpoint.frozen import dataclass
from pinchpoint.importers.kineto.columns import Columns
from pinchpoint.importers.kineto.reading.fields import Lane
from pinchpoint.trace.arrays import Array, of_rows

# ------------------------------------------------------------------------------------------------
# Rows in order of time.


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
    """The values in that order; one cell for all of them stays one."""
    return values if order is None else of_rows(values, order)


# ------------------------------------------------------------------------------------------------
# Time zero, and the rows of each lane in order of time.


# Kineto writes times that lie before its base time as 0. Other times of such a file are weeks
# after the base; a recording is never this long.
CLAMPED_GAP_NS = 3600 * 10**9
# Unix time in microseconds passed this in 2001: smaller times are relative to something.
LEAST_ABSOLUTE_NS = 10**18
# Beyond them a number is damage, and sums of times would not fit into 64 bits. Unix time reaches
# the first in 2043; the second is a year.
_FURTHEST_NS, _LONGEST_NS = 1 << 61, 1 << 55


@dataclass
class Spans:
    """The times of a lane, sorted, and the rows of the file that they come from."""

    start: Array
    duration: Array
    rows: Array | None  # None: all rows, as they stand

    def of(self, column: Array) -> Array:
        """A column of the lane in the order of the times."""
        return reordered(column, self.rows)


@dataclass
class Clock:
    """Moves time zero to the earliest event; remembers what was odd about the times."""

    zero_ns: int
    clamped: int = 0  # events whose start was lost
    beyond: int = 0  # events at a time, or for longer, than any recording has
    negative: int = 0  # durations below zero
    starts: dict[Lane, Array] = field(default_factory=dict)
    loses_zero: bool = False

    def spans(self, columns: Columns, lane: Lane, *, timed_only: bool = False) -> Spans:
        """The sorted times of a lane; events that lost their start are left out."""
        start = self.starts.pop(lane)
        duration = None if timed_only else columns.take(lane, "duration")
        if duration is not None and (negative := duration < 0).any():
            self.negative += int(negative.sum())
            duration[negative] = 0
        kept = self._kept(start, duration)
        start -= self.zero_ns
        if kept is not None:
            rows = time_order(start[kept], None if duration is None else duration[kept])
            rows = kept if rows is None else kept[rows]
        else:
            rows = time_order(start, duration)
        empty = np.zeros(0, np.int64)
        return Spans(
            reordered(start, rows), empty if duration is None else reordered(duration, rows), rows
        )

    def _kept(self, start: Array, duration: Array | None) -> Array | None:
        lost = ~_sane(start)
        if duration is not None:
            lost |= duration > _LONGEST_NS
        self.beyond += int(lost.sum())
        if self.loses_zero:
            self.clamped += int((start == 0).sum())
            lost |= start == 0
        if not lost.any():
            return None
        return np.flatnonzero(~lost)


def _sane(start: Array) -> Array:
    return (start > -_FURTHEST_NS) & (start < _FURTHEST_NS)


def clock_of(columns: Columns) -> Clock:
    """Find time zero."""
    starts = {lane: columns.take(lane, "start") for lane in Lane if lane < Lane.PAIR}
    sane = [s[_sane(s)] for s in starts.values()]
    earliest = [int(s.min()) for s in sane if len(s)]
    later = [int(s[s != 0].min(initial=np.iinfo(np.int64).max)) for s in sane if len(s)]
    if columns.left_out is not None:  # all that began at 0 was kept
        earliest.append(columns.left_out.earliest_ns)
        later.append(columns.left_out.earliest_ns)
    zero, next_ = min(earliest, default=0), min(later, default=0)
    if zero == 0 and next_ != np.iinfo(np.int64).max and next_ > CLAMPED_GAP_NS:
        return Clock(next_, starts=starts, loses_zero=True)
    return Clock(zero, starts=starts)


def origin_ns(frame: dict[str, Any], zero_ns: int) -> int | None:
    """Unix time of time zero, if the file's times are absolute or it states their base."""
    base = frame.get("baseTimeNanoseconds")
    if isinstance(base, int) and not isinstance(base, bool) and 0 <= base < 2**63:
        return base + zero_ns if zero_ns < LEAST_ABSOLUTE_NS else zero_ns
    return zero_ns if zero_ns >= LEAST_ABSOLUTE_NS else None
