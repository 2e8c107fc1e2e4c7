"""A device allocator as a memory snapshot shows it: events, segments, blocks, stacks.

The tables are declared in ``tables.py`` (``allocator_events``, ``allocator_segments``,
``allocator_blocks``). Sizes of allocations are the *requested* bytes; the allocator rounds them
up, and how far is not in the file: ``analysis/memory`` replays it.
"""

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from pinchpoint.frozen import dataclass
from pinchpoint.trace.arrays import Ints, NameIds
from pinchpoint.trace.table import Table


class AllocatorAction(IntEnum):
    """What the allocator did."""

    ALLOC = 1
    FREE_REQUESTED = 2  # the program let go of the block
    FREE_COMPLETED = 3  # no stream uses it any more: it can be handed out again
    SEGMENT_ALLOC = 4  # memory from the driver
    SEGMENT_FREE = 5
    SEGMENT_MAP = 6  # physical pages for an expandable segment
    SEGMENT_UNMAP = 7
    SNAPSHOT = 8
    OOM = 9  # a request that failed
    OTHER = 10  # an action of a version that we do not know


class BlockState(IntEnum):
    """What a block of a segment is at the moment of the snapshot."""

    ALLOCATED = 1
    PENDING_FREE = 2  # freed by the program, still used by a stream
    INACTIVE = 3  # cached: free to be handed out


class Frame(NamedTuple):
    """One line of a stack; ``line`` is 0 in C++ frames."""

    file: str
    line: int
    function: str


# Stands for the file in frames that are no frames, but what the recorder says blocks are used for.
CATEGORY_FILE = "category as recorded"


@dataclass(frozen=True, eq=False)
class Stacks:
    """Call stacks, each stored once. Stack ``i`` is ``frame[offset[i]:offset[i + 1]]``, positions
    in ``frames``, innermost first."""

    frames: tuple[Frame, ...]
    offset: Ints
    frame: NameIds

    def __len__(self) -> int:
        return len(self.offset) - 1

    def __getitem__(self, stack: int) -> tuple[Frame, ...]:
        inside = self.frame[self.offset[stack] : self.offset[stack + 1]]
        return tuple(self.frames[i] for i in inside.tolist())


@dataclass(frozen=True)
class Mark:
    """The beginning or end of a named range, in the order of the file."""

    name: str
    begins: bool
    device: int
    time_us: int | None


@dataclass(frozen=True, eq=False)
class MemorySnapshot:
    """What one ``torch.cuda.memory._snapshot()`` holds.

    ``complete`` is False where the file was cut off: what was read is whole, the rest is missing.
    ``unread_keys`` are keys of the file that no part of Pinchpoint knows. ``layout`` is False where
    segments stand for nothing but their blocks: the recorder did not say what the driver gave.
    """

    events: Table
    segments: Table
    blocks: Table
    stacks: Stacks
    marks: tuple[Mark, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    complete: bool = True
    unread_keys: tuple[str, ...] = ()
    layout: bool = True
