"""Memory that is held without being used: fragmentation, retries, growth that a cache could serve.

Cached segments with nothing in them are no waste: the allocator gives them back when it must.
"""

import numpy as np

from pinchpoint.analysis.memory.history import Heap, History, heap, once_per_history
from pinchpoint.frozen import dataclass
from pinchpoint.trace import AllocatorAction
from pinchpoint.trace.arrays import Mask

OVERHEAD_RATIO = 0.05  # reserved over used, at their peaks; steps of one size stay below
THOUGH_CACHED_RATIO = 0.25  # of new memory, taken while as much lay in the cache
VARYING_RATIO = 1.2  # steps whose forward passes allocate this much more than others


@dataclass(frozen=True)
class Retry:
    """The allocator gave cached segments back to the driver to serve one request."""

    event: int
    freed_bytes: int
    served: bool  # by a new segment; otherwise the request failed


@dataclass(frozen=True, eq=False)
class Waste:
    """Waste of one device. ``overhead_bytes``: by how much the peak of reserved exceeds the peak
    of active memory. ``grown_though_cached_bytes``: segments taken from the driver while as much
    was free in the cache. ``varying``: most over least bytes of a step's forward passes."""

    overhead_bytes: int
    active_peak_bytes: int
    reserved_peak_bytes: int
    grown_though_cached_bytes: int
    grown_bytes: int
    retries: tuple[Retry, ...]
    varying: float
    at_peak: Heap


@once_per_history
def waste(history: History) -> Waste:
    """Everything about unused memory."""
    replay = history.replay
    active, reserved = replay.peak("active"), replay.peak("reserved")
    grown, although = _growth(history)
    return Waste(
        overhead_bytes=reserved.bytes - active.bytes,
        active_peak_bytes=active.bytes,
        reserved_peak_bytes=reserved.bytes,
        grown_though_cached_bytes=although,
        grown_bytes=grown,
        retries=retries(history),
        varying=_varying(history),
        at_peak=heap(history, max(active.event, 0)),
    )


def _growth(history: History) -> tuple[int, int]:
    """Bytes of new segments, and of those that came although the cache had room in total."""
    replay = history.replay
    action, size = replay.events["action"], replay.events["bytes"]
    rows = np.flatnonzero(
        np.isin(action, (AllocatorAction.SEGMENT_ALLOC, AllocatorAction.SEGMENT_MAP))
    )
    rows = rows[rows + 1 < len(action)]
    rows = rows[action[rows + 1] == AllocatorAction.ALLOC]
    wanted = size[rows + 1]
    cached = (replay.reserved - replay.active)[rows] - size[rows]
    return int(size[rows].sum()), int(size[rows][cached >= wanted].sum())


@once_per_history
def retries(history: History) -> tuple[Retry, ...]:
    """Runs of segments given back right before one is taken, or before a request fails."""
    events = history.replay.events
    action, size = events["action"], events["bytes"]
    given = (action == AllocatorAction.SEGMENT_FREE) & ~_by_program(history)
    starts = np.flatnonzero(given & ~np.append(False, given[:-1]))
    out = []
    for start in starts.tolist():
        end = start
        while end < len(given) and given[end]:
            end += 1
        following = action[end] if end < len(action) else 0
        if following in (AllocatorAction.SEGMENT_ALLOC, AllocatorAction.OOM):
            served = following == AllocatorAction.SEGMENT_ALLOC
            out.append(Retry(end, int(size[start:end].sum()), served))
    return tuple(out)


def _by_program(history: History) -> Mask:
    """Events inside ``empty_cache`` or a graph's capture, which empties the cache by itself."""
    events = history.replay.events
    from pinchpoint.analysis.memory.owners.stacks import Sign

    signs = history.signs.has(Sign.EMPTY_CACHE | Sign.GRAPH_CAPTURE)
    result: Mask = events.known("stack") & np.append(signs, False)[events["stack"]]
    return result


def _varying(history: History) -> float:
    """How much the forward passes of the steps differ in what they allocate."""
    blocks = history.blocks
    from pinchpoint.analysis.memory.owners.phases import Phase

    born = np.append(history.phases.of_event, 0)[blocks.birth] == Phase.FORWARD
    born &= ~blocks.before
    first, end = np.array(history.steps.first), np.array(history.steps.end)
    if len(first) < 2:
        return 1.0
    running = np.zeros(len(history.replay) + 1, np.int64)
    np.add.at(running, blocks.birth[born] + 1, blocks.requested[born])
    total = np.cumsum(running)
    each = total[end] - total[first]
    each = each[1:][each[1:] > 0]  # the first step also warms up
    return float(each.max() / each.min()) if len(each) > 1 else 1.0
