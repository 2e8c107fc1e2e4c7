"""Which interval encloses which: parents of nested intervals, found without a loop over rows."""

from typing import NamedTuple

import numpy as np

from pinchpoint.trace.arrays import Ints

NO_ROW = -1  # no position of a row


class Nested(NamedTuple):
    """Intervals in nesting order: by group, then start, then longest first."""

    group: Ints
    start: Ints
    end: Ints
    parent: Ints  # position of the innermost enclosing interval of the group, or NO_ROW


def nesting_order(group: Ints, start: Ints, end: Ints) -> Ints:
    """The order in which ``nest`` needs its intervals; ties keep the order given."""
    return np.lexsort((-end, start, group))


def nest(group: Ints, start: Ints, end: Ints) -> Nested:
    """Parents of intervals that are already in nesting order.

    An interval that sticks out of another is not enclosed by it. Each round halves the distance
    that is left to the parent, so a million flat siblings take about twenty.
    """
    parent = np.arange(-1, len(start) - 1, dtype=np.int64)
    open_rows = np.arange(len(start), dtype=np.int64)
    while len(open_rows):
        candidate = parent[open_rows]
        stranger = (candidate != NO_ROW) & (group[candidate] != group[open_rows])
        parent[open_rows[stranger]] = NO_ROW
        too_short = (candidate != NO_ROW) & ~stranger & (end[candidate] < end[open_rows])
        open_rows = open_rows[too_short]
        parent[open_rows] = parent[parent[open_rows]]
    return Nested(group, start, end, parent)


def innermost(nested: Nested, group: Ints, start: Ints, end: Ints) -> Ints:
    """For each asked interval the innermost one of ``nested`` that encloses it, or NO_ROW."""
    found = _last_opened(nested, group, start)
    open_rows = np.flatnonzero(found != NO_ROW)
    while len(open_rows):
        candidate = found[open_rows]
        stranger = nested.group[candidate] != group[open_rows]
        short = nested.end[candidate] < end[open_rows]
        found[open_rows[stranger]] = NO_ROW
        open_rows = open_rows[short & ~stranger]
        found[open_rows] = nested.parent[found[open_rows]]
        open_rows = open_rows[found[open_rows] != NO_ROW]
    return found


def _last_opened(nested: Nested, group: Ints, start: Ints) -> Ints:
    """The last interval, in nesting order, that begins no later than each asked one."""
    found = np.full(len(start), NO_ROW, np.int64)
    for one in np.unique(group):
        low, high = np.searchsorted(nested.group, [one, one + 1])
        rows = np.flatnonzero(group == one)
        place = low + np.searchsorted(nested.start[low:high], start[rows], "right") - 1
        found[rows] = np.where(place >= low, place, NO_ROW)
    return found
