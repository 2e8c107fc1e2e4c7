"""How large each block really is: the allocator's rounding and splitting, replayed.

A request is rounded up and placed at the front of a free block; what is left of that block is
split off only if it is large enough. The addresses in a recording say which free block was taken,
so the replay has no choice to make, and is exact where the state at the beginning is known.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pinchpoint.analysis.memory.allocator.lives import Lives
from pinchpoint.analysis.memory.allocator.segments import Range, event_range
from pinchpoint.frozen import dataclass
from pinchpoint.trace import AllocatorAction, Table
from pinchpoint.trace.arrays import Ints

# ------------------------------------------------------------------------------------------------
# The allocator's rules for the size of a block: ``round_size`` and ``should_split``.
#
# Source: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.11, checked against recordings.


MIN_BLOCK_BYTES = 512  # kMinBlockSize
LARGE_REMAINDER_BYTES = 1 << 20  # kSmallSize: a smaller rest of a large block stays with it


@dataclass(frozen=True)
class Rules:
    """The allocator's settings that decide sizes."""

    expandable: bool = False
    max_split_bytes: int | None = None
    power2_divisions: tuple[tuple[int, int], ...] = ()  # (from MiB, divisions), ascending

    def rounded(self, requested: int) -> int:
        """Size of the block that serves a request, before any remainder."""
        if requested < MIN_BLOCK_BYTES:
            return MIN_BLOCK_BYTES
        divisions = self._divisions(requested)
        if divisions > 1 and requested > MIN_BLOCK_BYTES * divisions:
            return _next_division(requested, divisions)
        return -(-requested // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES

    def splits(self, rounded: int, rest: int, *, small: bool) -> bool:
        """Whether what a free block has left over becomes a block of its own."""
        if small or self.expandable:
            return rest >= MIN_BLOCK_BYTES
        fits = self.max_split_bytes is None or rounded < self.max_split_bytes
        return fits and rest > LARGE_REMAINDER_BYTES

    def _divisions(self, requested: int) -> int:
        found = 0
        for from_mib, divisions in self.power2_divisions:
            if requested >= from_mib << 20 or not found:
                found = divisions
        return found


def rules(settings: Mapping[str, Any]) -> Rules:
    """The rules from a snapshot's ``allocator_settings``; defaults for what it does not say."""
    split = settings.get("max_split_size")
    divisions = settings.get("roundup_power2_divisions")
    pairs = sorted(
        (int(key), int(value))
        for key, value in (divisions.items() if isinstance(divisions, Mapping) else ())
        if str(key).isdigit() and isinstance(value, int)
    )
    return Rules(
        expandable=bool(settings.get("expandable_segments")),
        max_split_bytes=split if isinstance(split, int) and split > 0 else None,
        power2_divisions=tuple(pairs) if any(value > 1 for _, value in pairs) else (),
    )


def _next_division(size: int, divisions: int) -> int:
    floor = 1 << (size.bit_length() - 1)
    if floor == size:
        return size
    step = floor >> (divisions.bit_length() - 1)
    if step == 0:
        return floor << 1
    return -(-size // step) * step


# ------------------------------------------------------------------------------------------------
# How large each block really is: the allocator's rounding and splitting, replayed.


MOST_SEARCHED = 50_000_000  # free blocks, to find where an unmapped range lies; real: hundreds
CHUNK_EVENTS = 1_000_000  # turned into Python numbers at a time

_ALLOC, _FREED = int(AllocatorAction.ALLOC), int(AllocatorAction.FREE_COMPLETED)
_GAINS = (int(AllocatorAction.SEGMENT_ALLOC), int(AllocatorAction.SEGMENT_MAP))
_LOSSES = (int(AllocatorAction.SEGMENT_FREE), int(AllocatorAction.SEGMENT_UNMAP))


@dataclass(frozen=True, eq=False)
class Sizes:
    """``bytes`` of each block of Lives, and by how much it may be larger at most.

    ``unplaced`` counts allocations whose free block the recording does not explain: their size is
    the rounded request.
    """

    bytes: Ints
    slack: Ints
    unplaced: int


@dataclass(frozen=True)
class BeforeAndAfter:
    """What is known around the events: ranges held before and after them, sizes at the end."""

    start: list[Range]
    end: list[Range]
    end_bytes: dict[int, int]  # address -> size of the blocks alive at the end


def sizes(events: Table, blocks: Lives, around: BeforeAndAfter, rules: Rules) -> Sizes:
    """Replay the layout of the heap. Blocks must be in order of birth, as ``lives`` gives them."""
    first = int(np.count_nonzero(blocks.before))
    before, slack = _sizes_before(blocks, first, around, rules, len(events))
    layout = _Layout(rules)
    layout.begin(around.start, blocks.address[:first].tolist(), before.tolist())
    born = np.zeros(len(blocks) - first, np.int64)
    known = {r.start: r for r in around.end}
    at = 0
    for row, kind, address, size in _relevant(events):
        if kind == _ALLOC:
            born[at] = layout.place(address, size)
            at += 1
        elif kind == _FREED:
            layout.release(address)
        elif kind in _GAINS:
            layout.gain(event_range(events, row, known))
        else:
            layout.lose(event_range(events, row, known))
    return Sizes(np.concatenate((before, born)), slack, layout.unplaced)


def _relevant(events: Table) -> Iterator[tuple[int, int, int, int]]:
    kinds = (_ALLOC, _FREED, *_GAINS, *_LOSSES)
    rows = np.flatnonzero(np.isin(events["action"], kinds))
    for start in range(0, len(rows), CHUNK_EVENTS):
        some = rows[start : start + CHUNK_EVENTS]
        columns = (events[name][some].tolist() for name in ("action", "address", "bytes"))
        yield from zip(some.tolist(), *columns, strict=True)


def _sizes_before(
    blocks: Lives, first: int, around: BeforeAndAfter, rules: Rules, end: int
) -> tuple[Ints, Ints]:
    """Sizes of the blocks that were there before the recording, and their slack.

    Those that stayed are in the snapshot. Of the others the request is known. In a large segment a
    free block is always longer than a small remainder, so a short gap behind a block belongs to
    it; behind a long gap it may own up to one remainder, unless a block that was placed there
    shows where the gap began.
    """
    out = np.zeros(first, np.int64)
    slack = np.zeros(len(blocks), np.int64)
    order = np.argsort(blocks.address[:first], kind="stable")
    address = blocks.address[:first][order].tolist()
    placed = _first_placed_behind(blocks, first, order)
    ranges = iter(around.start)
    inside: Range | None = next(ranges, None)
    for i, block in enumerate(order.tolist()):
        here = address[i]
        while inside is not None and inside.end <= here:
            inside = next(ranges, None)
        least = rules.rounded(int(blocks.requested[block]))
        out[block] = least
        if blocks.death[block] == end:
            out[block] = around.end_bytes.get(here, least)
        elif inside is not None and inside.start <= here and not (inside.small or inside.mapped):
            following = min(address[i + 1], inside.end) if i + 1 < first else inside.end
            gap = following - here - least
            if 0 < gap <= LARGE_REMAINDER_BYTES:
                out[block] = least + gap
            elif gap > 0 and (begin := placed.get(block, following)) < following:
                out[block] = max(least, begin - here)
            elif gap > 0:
                slack[block] = min(LARGE_REMAINDER_BYTES, gap - LARGE_REMAINDER_BYTES)
    return out, slack


def _first_placed_behind(blocks: Lives, first: int, order: Ints) -> dict[int, int]:
    """For blocks from before: where the first block was placed in the gap right behind them."""
    if not first or first == len(blocks):
        return {}
    sorted_address = blocks.address[:first][order]
    born = blocks.address[first:]
    position = np.searchsorted(sorted_address, born, "right") - 1
    owner = order[np.maximum(position, 0)]
    fits = (position >= 0) & (blocks.birth[first:] < blocks.death[owner])
    distance = (born - blocks.address[owner]).astype(np.int64)
    fits &= distance <= blocks.requested[owner] + 2 * LARGE_REMAINDER_BYTES
    owners, at = np.unique(owner[fits], return_index=True)
    return dict(zip(owners.tolist(), born[fits][at].tolist(), strict=True))


class _Layout:
    """Free and used blocks by address. ``owner`` says which free neighbours may join: a fixed
    segment stands alone, the mapped ranges of one stream form one."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.unplaced = self._searched = 0
        self._free: dict[int, tuple[int, int, bool]] = {}  # start -> end, owner, small
        self._free_end: dict[int, int] = {}  # end -> start
        self._used: dict[int, tuple[int, int, bool]] = {}
        self._rounded: dict[int, int] = {}

    def begin(self, ranges: list[Range], addresses: list[int], size: list[int]) -> None:
        """The state before the first event."""
        used = sorted(zip(addresses, size, strict=True))
        at = 0
        for held in ranges:
            owner, here = _owner(held), held.start
            while at < len(used) and used[at][0] < held.end:
                address, length = used[at]
                at += 1
                if address < held.start:
                    continue
                self._join(here, address, owner, held.small)
                here = address + length
                self._used[address] = (here, owner, held.small)
            self._join(here, held.end, owner, held.small)

    def place(self, address: int, requested: int) -> int:
        """A block at the front of the free block there; returns its size."""
        least = self._rounded.get(requested)
        if least is None:
            least = self._rounded[requested] = self.rules.rounded(requested)
        spot = self._free.pop(address, None)
        if spot is None:
            self.unplaced += 1
            return least
        end, owner, small = spot
        self._free_end.pop(end, None)
        stop = address + least
        if stop < end and self.rules.splits(least, end - stop, small=small):
            self._free[stop] = (end, owner, small)
            self._free_end[end] = stop
            end = stop
        self._used[address] = (end, owner, small)
        return end - address

    def release(self, address: int) -> None:
        """The block becomes free and joins its free neighbours."""
        spot = self._used.pop(address, None)
        if spot is not None:
            self._join(address, *spot)

    def gain(self, held: Range) -> None:
        """Memory from the driver."""
        self._join(held.start, held.end, _owner(held), held.small)

    def lose(self, held: Range) -> None:
        """Memory back to the driver: a whole segment, or the middle of a free mapped block."""
        start = held.start
        if start not in self._free:
            start = self._containing(start) if held.mapped else -1
            if start < 0:
                return
        end, owner, small = self._free.pop(start)
        self._free_end.pop(end, None)
        self._put(start, held.start, owner, small)
        self._put(held.end, end, owner, small)

    def _containing(self, address: int) -> int:
        """The free block that an address lies in; -1 if none, or after too long a search."""
        self._searched += len(self._free)
        if self._searched > MOST_SEARCHED:
            return -1
        return next((s for s, f in self._free.items() if s < address < f[0]), -1)

    def _join(self, start: int, end: int, owner: int, small: bool) -> None:
        if end <= start:
            return
        before = self._free_end.get(start, -1)
        if before in self._free and self._free[before][1] == owner:
            del self._free_end[start], self._free[before]
            start = before
        behind = self._free.get(end)
        if behind is not None and behind[1] == owner:
            del self._free[end]
            self._free_end.pop(behind[0], None)
            end = behind[0]
        self._put(start, end, owner, small)

    def _put(self, start: int, end: int, owner: int, small: bool) -> None:
        if end > start:
            self._free[start] = (end, owner, small)
            self._free_end[end] = start


def _owner(held: Range) -> int:
    return -1 - held.stream if held.mapped else held.start
