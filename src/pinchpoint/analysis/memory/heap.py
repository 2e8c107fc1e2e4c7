"""The layout of the heap at one moment: what is live, and where the free memory lies."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.memory.history import History
from pinchpoint.analysis.memory.segments import Range
from pinchpoint.trace.arrays import Ints


@dataclass(frozen=True, eq=False)
class Heap:
    """Ranges held from the driver, sorted by address; live blocks and holes inside them.

    ``blocks`` are positions in Lives, sorted by address, ``block_range`` the range of each; a hole
    is a free stretch: it lies in ``hole_range``.
    """

    ranges: tuple[Range, ...]
    blocks: Ints
    block_range: Ints
    hole_bytes: Ints
    hole_range: Ints
    live_bytes: Ints  # of each range
    rounding_bytes: int  # by which live blocks are larger than what was asked for

    @property
    def reserved_bytes(self) -> int:
        """Held from the driver."""
        return sum(r.end - r.start for r in self.ranges)

    @property
    def whole_free_bytes(self) -> int:
        """In ranges with nothing live: the allocator gives them back when it must."""
        return int(self.hole_bytes[self.live_bytes[self.hole_range] == 0].sum())

    @property
    def split_free_bytes(self) -> int:
        """Free, but in ranges that hold something live: cannot be given back."""
        return int(self.hole_bytes[self.live_bytes[self.hole_range] > 0].sum())

    @property
    def partly_used(self) -> int:
        """Ranges that hold both live and free memory."""
        used = self.live_bytes > 0
        with_hole = np.zeros(len(self.ranges), np.bool_)
        with_hole[self.hole_range] = True
        return int((used & with_hole).sum())

    def holes_for(self, *, small: bool, stream: int, pool: str | None = None) -> Ints:
        """Sizes of the holes that a request of this pool and stream may use."""
        usable = np.array(
            [r.small == small and r.stream == stream and r.pool == pool for r in self.ranges],
            np.bool_,
        )
        return self.hole_bytes[usable[self.hole_range]] if len(self.ranges) else self.hole_bytes


def heap(history: History, event: int) -> Heap:
    """The heap right after an event."""
    replay = history.replay
    ranges = tuple(
        sorted((h.range for h in replay.held if h.birth <= event < h.death), key=lambda r: r.start)
    )
    rows = np.flatnonzero(replay.blocks.alive(event))
    rows = rows[np.argsort(replay.blocks.address[rows], kind="stable")]
    address, size = replay.blocks.address[rows], replay.size[rows]
    starts = np.array([r.start for r in ranges], np.uint64)
    ends = np.array([r.end for r in ranges], np.uint64)
    if not len(ranges):
        none = np.zeros(0, np.int64)
        return Heap((), rows, none, none, none, none, 0)
    owner = np.searchsorted(starts, address, "right") - 1
    inside = (owner >= 0) & (address < ends[np.maximum(owner, 0)])
    rows, address, size, owner = rows[inside], address[inside], size[inside], owner[inside]
    hole_from, hole_to, hole_range = _holes(starts, ends, address, size, owner)
    live = np.zeros(len(ranges), np.int64)
    np.add.at(live, owner, size)
    return Heap(
        ranges=ranges,
        blocks=rows,
        block_range=owner,
        hole_bytes=(hole_to - hole_from).astype(np.int64),
        hole_range=hole_range,
        live_bytes=live,
        rounding_bytes=int((size - replay.blocks.requested[rows]).sum()),
    )


def _holes(
    starts: NDArray[np.uint64],
    ends: NDArray[np.uint64],
    address: NDArray[np.uint64],
    size: Ints,
    owner: Ints,
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], Ints]:
    """What lies between the beginning of a range, its blocks, and its end."""
    edges = np.concatenate((starts, address + size.astype(np.uint64)))
    of_range = np.concatenate((np.arange(len(starts)), owner))
    order = np.lexsort((edges, of_range))
    begin, of_range = edges[order], of_range[order]
    upto = np.concatenate((address, ends))
    upto_range = np.concatenate((owner, np.arange(len(ends))))
    stop = upto[np.lexsort((upto, upto_range))]
    gap = stop > begin
    return begin[gap], stop[gap], of_range[gap]
