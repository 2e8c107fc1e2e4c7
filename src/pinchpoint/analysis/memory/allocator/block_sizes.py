"""How large each block really is: the allocator's rounding and splitting, replayed.

A request is rounded up and placed at the front of a free block; what is left of that block is
split off only if it is large enough. The addresses in a recording say which free block was taken,
so the replay has no choice to make, and is exact where the state at the beginning is known.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.memory.allocator.lives import Lives
from pinchpoint.analysis.memory.allocator.segments import Range, event_range
from pinchpoint.frozen import dataclass
from pinchpoint.trace import AllocatorAction, Table
from pinchpoint.trace.arrays import Codes, Ints, Rows

compiled: Any = None
with suppress(ImportError):  # installed without a compiler
    compiled = import_module("pinchpoint.analysis.memory.allocator._blocks")

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
    known = {r.start: r for r in around.end}
    found = [before]
    for rows, change in _stretches(events):
        born = events["action"][rows] == _ALLOC
        least = _rounded(np.where(born, events["bytes"][rows], 0), rules)
        found.append(layout.blocks.run(born.view(np.uint8), events["address"][rows], least))
        if change is not None:
            held = event_range(events, change, known)
            gains = events["action"][change] in _GAINS
            layout.gain(held) if gains else layout.blocks.lose(held.start, held.end, held.mapped)
    return Sizes(np.concatenate(found), slack, layout.blocks.unplaced)


def _stretches(events: Table) -> Iterator[tuple[Rows, int | None]]:
    """Rows of blocks that come and go, each time up to an event of memory of the driver's."""
    action = events["action"]
    rows = np.flatnonzero((action == _ALLOC) | (action == _FREED))
    changes = np.flatnonzero(np.isin(action, (*_GAINS, *_LOSSES)))
    ends = [*np.searchsorted(rows, changes).tolist(), len(rows)]
    for start, end, change in zip([0, *ends], ends, [*changes.tolist(), None], strict=False):
        yield rows[start:end], change


def _rounded(requested: Ints, rules: Rules) -> Ints:
    if not rules.power2_divisions:
        blocks = (requested + (MIN_BLOCK_BYTES - 1)) // MIN_BLOCK_BYTES
        return np.maximum(blocks, 1) * MIN_BLOCK_BYTES
    distinct = np.unique(requested)  # hashes; with the inverse it would sort them all
    each: Ints = np.array([rules.rounded(size) for size in distinct.tolist()], np.int64)
    return each[np.searchsorted(distinct, requested)]


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
    """The heap as it is replayed, and the kinds of its blocks.

    The owner says which free neighbours may join: a fixed segment stands alone, the mapped ranges
    of one stream form one. A kind is twice the number of the owner, plus 1 in small segments.
    """

    def __init__(self, rules: Rules) -> None:
        self.blocks = made(rules)
        self._owners: dict[int, int] = {}

    def begin(self, ranges: list[Range], addresses: list[int], size: list[int]) -> None:
        """The state before the first event."""
        used = sorted(zip(addresses, size, strict=True))
        at = 0
        for held in ranges:
            kind, here = self._kind(held), held.start
            while at < len(used) and used[at][0] < held.end:
                address, length = used[at]
                at += 1
                if address < held.start:
                    continue
                self.blocks.join(here, address, kind)
                here = address + length
                self.blocks.use(address, here, kind)
            self.blocks.join(here, held.end, kind)

    def gain(self, held: Range) -> None:
        """Memory from the driver."""
        self.blocks.join(held.start, held.end, self._kind(held))

    def _kind(self, held: Range) -> int:
        owner = self._owners.setdefault(_owner(held), len(self._owners))
        return 2 * owner + held.small


def made(rules: Rules) -> "Blocks":
    """No blocks yet; the compiled form where there is one."""
    if compiled is None:
        return Blocks(rules)
    limits = (MIN_BLOCK_BYTES, LARGE_REMAINDER_BYTES, MOST_SEARCHED)
    found: Blocks = compiled.Blocks(rules, limits)
    return found


class Blocks:
    """Free and used blocks by address. ``unplaced`` is how many had no free block."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.unplaced = self._searched = 0
        self._free: dict[int, tuple[int, int]] = {}  # start -> end, kind
        self._free_end: dict[int, int] = {}  # end -> start
        self._used: dict[int, tuple[int, int]] = {}

    def run(self, born: Codes, address: NDArray[np.uint64], least: Ints) -> Ints:
        """Sizes of the blocks that are born; the other rows are blocks that become free.

        ``least`` is what a block takes at least, bytes; the arrays have one row an event.
        """
        out = []
        for is_born, at, size in zip(*(c.tolist() for c in (born, address, least)), strict=True):
            if is_born:
                out.append(self._place(at, size))
            elif (spot := self._used.pop(at, None)) is not None:
                self.join(at, *spot)
        return np.array(out, np.int64)

    def use(self, start: int, end: int, kind: int) -> None:
        """A block that is in use."""
        self._used[start] = (end, kind)

    def join(self, start: int, end: int, kind: int) -> None:
        """A free block, which joins its free neighbours."""
        if end <= start:
            return
        before = self._free_end.get(start, -1)
        if before in self._free and self._free[before][1] >> 1 == kind >> 1:
            del self._free_end[start], self._free[before]
            start = before
        behind = self._free.get(end)
        if behind is not None and behind[1] >> 1 == kind >> 1:
            del self._free[end]
            self._free_end.pop(behind[0], None)
            end = behind[0]
        self._put(start, end, kind)

    def lose(self, start: int, end: int, mapped: bool) -> None:
        """Memory back to the driver: a whole segment, or the middle of a free mapped block."""
        begin = start
        if start not in self._free:
            begin = self._containing(start) if mapped else -1
            if begin < 0:
                return
        stop, kind = self._free.pop(begin)
        self._free_end.pop(stop, None)
        self._put(begin, start, kind)
        self._put(end, stop, kind)

    def _place(self, address: int, least: int) -> int:
        """A block at the front of the free block there; returns its size."""
        spot = self._free.pop(address, None)
        if spot is None:
            self.unplaced += 1
            return least
        end, kind = spot
        self._free_end.pop(end, None)
        stop = address + least
        if stop < end and self.rules.splits(least, end - stop, small=bool(kind & 1)):
            self._put(stop, end, kind)
            end = stop
        self._used[address] = (end, kind)
        return end - address

    def _containing(self, address: int) -> int:
        """The free block that an address lies in; -1 if none, or after too long a search."""
        self._searched += len(self._free)
        if self._searched > MOST_SEARCHED:
            return -1
        return next((s for s, f in self._free.items() if s < address < f[0]), -1)

    def _put(self, start: int, end: int, kind: int) -> None:
        if end > start:
            self._free[start] = (end, kind)
            self._free_end[end] = start


def _owner(held: Range) -> int:
    return -1 - held.stream if held.mapped else held.start
