"""Algebra of half-open integer intervals ``[start, end)``; every function is O(n log n) at most.

A *set* of intervals is a pair of equally long int64 arrays ``(start, end)``. A *flat* set is
sorted, disjoint and non-touching; ``flatten`` makes one. Empty intervals vanish.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pinchpoint.trace.arrays import Ints, Mask


class Intervals(NamedTuple):
    """A flat set of intervals: sorted, disjoint, none empty."""

    start: Ints
    end: Ints

    @property
    def total(self) -> int:
        """Time covered."""
        return int((self.end - self.start).sum())


NONE = Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))


def flatten(start: ArrayLike, end: ArrayLike) -> Intervals:
    """The union of any intervals, as a flat set."""
    first, last = np.asarray(start, np.int64), np.asarray(end, np.int64)
    keep = last > first
    if not keep.all():
        first, last = first[keep], last[keep]
    if not len(first):
        return NONE
    if np.any(first[1:] < first[:-1]):
        order = np.argsort(first, kind="stable")
        first, last = first[order], last[order]
    reach = np.maximum.accumulate(last)
    opens = np.concatenate(([True], first[1:] > reach[:-1]))
    if opens.all():
        return Intervals(first, reach)
    closes = np.append(np.flatnonzero(opens)[1:] - 1, len(first) - 1)
    return Intervals(first[opens], reach[closes])


def complement(busy: Intervals, start: int, end: int) -> Intervals:
    """What ``busy`` leaves free of the window ``[start, end)``."""
    inside = clip(busy, start, end)
    edges_from = np.concatenate(([start], inside.end)).astype(np.int64)
    edges_to = np.concatenate((inside.start, [end])).astype(np.int64)
    keep = edges_to > edges_from
    return Intervals(edges_from[keep], edges_to[keep])


def clip(a: Intervals, start: int, end: int) -> Intervals:
    """The part of ``a`` inside the window ``[start, end)``."""
    low = np.searchsorted(a.end, start, "right")
    high = np.searchsorted(a.start, end, "left")
    first, last = a.start[low:high], a.end[low:high]
    first, last = np.maximum(first, start), np.minimum(last, end)
    keep = last > first
    return Intervals(first[keep], last[keep])


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """Time that is in both flat sets."""
    if not len(a.start) or not len(b.start):
        return NONE
    low = np.searchsorted(b.end, a.start, "right")
    high = np.searchsorted(b.start, a.end, "left")
    counts = np.maximum(high - low, 0)
    which_a = np.repeat(np.arange(len(a.start)), counts)
    offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    which_b = low[which_a] + offset
    first = np.maximum(a.start[which_a], b.start[which_b])
    last = np.minimum(a.end[which_a], b.end[which_b])
    return flatten(first, last)


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """Time that is in ``a`` and not in ``b``; both flat."""
    if not len(a.start) or not len(b.start):
        return a
    low, high = int(a.start[0]), int(a.end[-1])
    return intersect(a, complement(b, low, high))


def union(a: Intervals, b: Intervals) -> Intervals:
    """Time that is in either flat set."""
    if not len(a.start) or not len(b.start):
        return a if len(a.start) else b
    return flatten(np.concatenate((a.start, b.start)), np.concatenate((a.end, b.end)))


def covered_before(a: Intervals, times: ArrayLike) -> Ints:
    """How much of the flat set ``a`` lies before each time; shape of ``times``.

    Two lookups give the covered part of any window: ``covered_before(a, end) - ... start``.
    """
    at = np.asarray(times, np.int64)
    if not len(a.start) or not at.size:
        return np.zeros(at.shape, np.int64)
    before = np.concatenate(([0], np.cumsum(a.end - a.start)))
    index = np.searchsorted(a.start, at, "right")
    full = before[index]
    last = np.maximum(index - 1, 0)
    over = np.where(index > 0, np.maximum(a.end[last] - at, 0), 0)
    result: Ints = full - over
    return result


def contains(a: Intervals, times: ArrayLike) -> Mask:
    """Whether each time lies in the flat set ``a``; starts do, ends do not."""
    at = np.asarray(times, np.int64)
    if not len(a.start):
        return np.zeros(at.shape, np.bool_)
    last = np.searchsorted(a.start, at, "right") - 1
    inside: Mask = (last >= 0) & (at < a.end[last])
    return inside


# ------------------------------------------------------------------------------------------------
# Which interval encloses which: parents of nested intervals, found without a loop over rows.


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
