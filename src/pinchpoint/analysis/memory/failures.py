"""Requests that failed: the state at that moment, why, and how much the step would have needed.

By the time a snapshot is taken the program has let go of most blocks; so the heap is rewound to
the event of the failure.
"""

import numpy as np

from pinchpoint.analysis.memory.allocator.block_sizes import LARGE_REMAINDER_BYTES
from pinchpoint.analysis.memory.history import Heap, History, heap, once_per_history
from pinchpoint.analysis.memory.owners.phases import Phase, Run
from pinchpoint.frozen import dataclass
from pinchpoint.trace import AllocatorAction
from pinchpoint.trace.arrays import Ints

MIN_COMMON_ALLOCATIONS = 8  # of two passes, to compare them by what they allocate
SAME_ORDER_RATIO = 0.9  # of the allocations that two passes of one model share


@dataclass(frozen=True)
class Forecast:
    """What the failing step would have needed, from an earlier step that did the same with other
    sizes. ``scale``: how much more it allocates than that step; ``needed_bytes``: its peak."""

    scale: float
    earlier_peak_bytes: int
    needed_bytes: int


@dataclass(frozen=True)
class Failure:
    """One request that failed. ``limit_bytes`` is what the process could reserve at least;
    ``capped``: the device had room, so a limit of the process was in the way."""

    event: int
    wanted_bytes: int
    device_free_bytes: int | None
    live_bytes: int
    reserved_bytes: int
    limit_bytes: int
    capped: bool
    usable_free_bytes: int
    largest_hole_bytes: int
    fragmented: bool
    forecast: Forecast | None
    heap: Heap


@once_per_history
def failures(history: History) -> tuple[Failure, ...]:
    """Every failed request, in order."""
    events = history.replay.events
    rows = np.flatnonzero(events["action"] == AllocatorAction.OOM)
    return tuple(_failure(history, int(row)) for row in rows)


def _failure(history: History, event: int) -> Failure:
    replay = history.replay
    wanted = int(replay.events["bytes"][event])
    free = replay.events.value("free_bytes", event)
    at = heap(history, event)
    holes = at.holes_for(
        small=wanted <= LARGE_REMAINDER_BYTES, stream=int(replay.events["stream"][event])
    )
    usable, largest = int(holes.sum()), int(holes.max(initial=0))
    reserved = int(replay.reserved[event])
    capped = free is not None and free >= wanted
    room = 0 if capped or free is None else int(free)
    forecast = _forecast(history, event)
    fits_in_total = usable + room >= wanted > largest
    short = 0 if forecast is None else forecast.needed_bytes - (reserved + room)
    return Failure(
        event=event,
        wanted_bytes=wanted,
        device_free_bytes=None if free is None else int(free),
        live_bytes=int(replay.requested[event]),
        reserved_bytes=reserved,
        limit_bytes=reserved + room,
        capped=capped,
        usable_free_bytes=usable,
        largest_hole_bytes=largest,
        fragmented=fits_in_total and short <= 0,
        forecast=forecast,
        heap=at,
    )


def _forecast(history: History, event: int) -> Forecast | None:
    """Scale the most recent step whose forward pass allocates in the same order."""
    passes = [r for r in history.phases.of(Phase.FORWARD) if r.first <= event]
    if not passes:
        return None
    failing = _allocations(history, passes[-1], event)
    for earlier in reversed(passes[:-1]):
        rows = _allocations(history, earlier, earlier.end)
        common = min(len(rows), len(failing))
        if common < MIN_COMMON_ALLOCATIONS or len(failing) > len(rows):
            continue
        stacks = history.blocks.stack
        same = stacks[rows[:common]] == stacks[failing[:common]]
        if same.mean() < SAME_ORDER_RATIO:
            continue
        sizes = history.blocks.requested
        before = int(sizes[rows[:common][same]].sum())
        scale = int(sizes[failing[:common][same]].sum()) / max(before, 1)
        return _scaled(history, earlier, scale, passes[-1])
    return None


def _allocations(history: History, run: Run, end: int) -> Ints:
    return history.blocks.born_within(run.first, min(run.end, end))


def _scaled(history: History, earlier: Run, scale: float, failing: Run) -> Forecast:
    following = [r.first for r in history.phases.of(Phase.FORWARD) if r.first > earlier.first]
    until = min(following, default=len(history.replay))
    curve = history.replay.requested
    before = int(curve[max(earlier.first - 1, 0)])
    peak = int(curve[earlier.first : until].max())
    base = int(curve[max(failing.first - 1, 0)])
    return Forecast(scale, peak, int(base + scale * (peak - before)))
