"""Which slices of a long recording stay: some steps in full, the longest events elsewhere.

The others are folded into stretches that say how many events they stand for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pinchpoint.report.timeline.full_steps import FullStep
from pinchpoint.report.timeline.kinds import Numbers
from pinchpoint.report.timeline.lanes import NO_LINK, Slices, Timeline, by_table
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Mask

MOST_SLICES = 1_000_000  # more make the page slow to load; packed they are about 6 MB
FULL_RATIO = 0.45  # of the slices, at most, for steps in full
STRETCH_RATIO = 0.2  # for stretches, where nothing separates them
# What is left goes to the longest events elsewhere, twice: each may part a stretch into two.


@dataclass(frozen=True)
class Folded:
    """The timeline, and the steps in which every event is drawn; None: in all of them."""

    drawn: Timeline
    in_full: tuple[FullStep, ...] | None


def folded(trace: Trace, whole: Timeline, steps: Sequence[FullStep], most: int) -> Folded:
    """At most ``most`` slices or so."""
    slices = whole.slices
    if len(slices) <= most:
        return Folded(whole, None)
    complete, held = _in_full(slices, steps, int(most * FULL_RATIO))
    left = int(most * (1 - STRETCH_RATIO)) - int(np.count_nonzero(held))
    threshold = _threshold(slices.duration_ns[~held], left // 2)
    kept = held | (slices.duration_ns >= threshold)
    shown, place = _stretched(slices, kept, max(int(most * STRETCH_RATIO), 1))
    rows = sum(len(rows) for rows in whole.place_of.values())
    of_row = np.full(rows, NO_LINK, np.int64)
    of_row[slices.row] = place
    said = (*whole.left_out, _sentence(len(slices), shown, threshold, complete))
    drawn = replace(whole, slices=shown, left_out=said, place_of=by_table(trace, of_row))
    return Folded(drawn, complete)


def _in_full(
    slices: Slices, steps: Sequence[FullStep], most: int
) -> tuple[tuple[FullStep, ...], Mask]:
    """The steps that fit into ``most`` slices, the first ones first, and their slices.

    Where not even the first fits, the longest slices of it.
    """
    held, complete = np.zeros(len(slices), np.bool_), []
    for step in steps:
        inside = (slices.start_ns < step.end_ns) & (slices.start_ns >= step.start_ns)
        together = held | inside
        if np.count_nonzero(together) <= most:
            held = together
            complete.append(step)
        elif not held.any():
            rows = np.flatnonzero(inside)
            least = _threshold(slices.duration_ns[rows], most)
            held[rows[slices.duration_ns[rows] >= least]] = True
    return tuple(complete), held


def _threshold(duration: Numbers, most: int) -> int:
    """The duration that fewer than ``most`` reach."""
    if len(duration) <= most:
        return 0
    return int(np.partition(duration, len(duration) - most)[len(duration) - most]) + 1


def _sentence(events: int, shown: Slices, threshold: int, complete: Sequence[FullStep]) -> str:
    alone = int(np.count_nonzero(shown.count == 0))
    said = (
        f"{events - alone:,} of {events:,} events are shorter than {threshold:,} ns and drawn as "
        "grey stretches that say how many they stand for; search and its sums count all of them"
    )
    if not complete:
        return said
    steps = ", ".join(f"{step.number} ({', '.join(step.why)})" for step in complete)
    return f"{said}. In full: step {steps}"


def _stretched(slices: Slices, kept: Mask, most: int) -> tuple[Slices, Numbers]:
    """The kept slices with stretches between them, and where each slice went."""
    begins = _stretch_begins(slices, kept, most)
    first = np.flatnonzero(begins)
    small = ~kept[first]
    end = np.maximum.reduceat(slices.start_ns + slices.duration_ns, first)
    events = np.diff(np.append(first, len(slices)))
    place = np.cumsum(begins) - 1
    linked = slices.link[first]
    target = np.where(linked == NO_LINK, NO_LINK, place[linked])
    shown = Slices(
        slices.lane[first],
        slices.depth[first],
        slices.start_ns[first],
        np.where(small, end - slices.start_ns[first], slices.duration_ns[first]),
        slices.entry[first],
        np.where(small, NO_LINK, target),
        np.where(small, events, 0),
        slices.row[first],
    )
    return shown, place


def _stretch_begins(slices: Slices, kept: Mask, most: int) -> Mask:
    """Where a kept slice or a stretch of folded ones begins."""
    track = np.empty(len(slices), np.bool_)
    track[0] = True
    track[1:] = (np.diff(slices.lane) != 0) | (np.diff(slices.depth) != 0)
    span = int(slices.start_ns.max() - slices.start_ns.min()) + 1
    width = max(span // max(most // int(track.sum()), 1), 1)
    bucket = (slices.start_ns - slices.start_ns.min()) // width
    begins = track | kept
    begins[1:] |= kept[:-1] | (np.diff(bucket) != 0)
    return begins
