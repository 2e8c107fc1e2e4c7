"""Algebra of half-open integer intervals ``[start, end)``; every function is O(n log n) at most.

A *set* of intervals is a pair of equally long int64 arrays ``(start, end)``. A *flat* set is
sorted, disjoint and non-touching; ``flatten`` makes one. Empty intervals vanish.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pinchpoint.trace.arrays import Ints


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
    return flatten(np.concatenate((a.start, b.start)), np.concatenate((a.end, b.end)))


def covered_before(a: Intervals, times: ArrayLike) -> Ints:
    """How much of the flat set ``a`` lies before each time; shape of ``times``.

    Two lookups give the covered part of any window: ``covered_before(a, end) - ... start``.
    """
    at = np.asarray(times, np.int64)
    if not len(a.start):
        return np.zeros(at.shape, np.int64)
    before = np.concatenate(([0], np.cumsum(a.end - a.start)))
    index = np.searchsorted(a.start, at, "right")
    full = before[index]
    last = np.maximum(index - 1, 0)
    over = np.where(index > 0, np.maximum(a.end[last] - at, 0), 0)
    result: Ints = full - over
    return result
