"""Everything that later questions need to know about one device, found once per trace."""

from collections.abc import Callable
from dataclasses import field, replace
from functools import wraps
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.host.frames import Owner, owner_of
from pinchpoint.frozen import dataclass
from pinchpoint.trace import MemorySnapshot, Trace, once_per_trace
from pinchpoint.trace.arrays import Ints

if TYPE_CHECKING:
    from pinchpoint.analysis.memory.allocator.lives import Lives
    from pinchpoint.analysis.memory.allocator.replay import AllocatorReplay
    from pinchpoint.analysis.memory.allocator.segments import Range
    from pinchpoint.analysis.memory.owners.owners import MemoryCategory, Owners
    from pinchpoint.analysis.memory.owners.phases import EventSteps, Phases
    from pinchpoint.analysis.memory.owners.stacks import StackSigns


Answer = TypeVar("Answer")


@dataclass(frozen=True, eq=False)
class History:
    """One device: its allocator replayed, its events in phases and steps, its blocks owned."""

    device: int
    replay: "AllocatorReplay"
    signs: "StackSigns"
    phases: "Phases"
    steps: "EventSteps"
    owners: "Owners"
    snapshot: MemorySnapshot

    @property
    def has_layout(self) -> bool:
        """Whether segments are known, so that free memory can be placed."""
        return self.snapshot.layout and bool(self.replay.held)

    @property
    def blocks(self) -> "Lives":
        """The blocks of the replay."""
        return self.replay.blocks

    @property
    def last(self) -> int:
        """The last event."""
        return len(self.replay) - 1

    @property
    def peak_event(self) -> int:
        """The event after which most is requested."""
        return self.replay.peak("requested").event

    def bytes_of(self, event: int) -> "dict[MemoryCategory, int]":
        """Requested bytes of each category right after an event."""
        return self.sum_by_category(self.blocks.alive(event))

    def sum_by_category(self, rows: np.ndarray) -> "dict[MemoryCategory, int]":
        """Requested bytes of some blocks by category."""
        from pinchpoint.analysis.memory.owners.owners import MemoryCategory

        total = np.bincount(
            self.owners.category[rows],
            self.blocks.requested[rows],
            minlength=len(MemoryCategory) + 1,
        )
        return {category: int(total[category]) for category in MemoryCategory}

    def stack_of(self, block: int) -> int | None:
        """The stack that allocated a block, where known."""
        return int(self.blocks.stack[block]) if self.blocks.has_stack[block] else None


def once_per_history(question: Callable[[History], Answer]) -> Callable[[History], Answer]:
    """Remember the answer of a pure function of a history for as long as the history lives."""
    remembered: WeakKeyDictionary[History, Answer] = WeakKeyDictionary()

    @wraps(question)
    def ask(history: History) -> Answer:
        if history not in remembered:
            remembered[history] = question(history)
        return remembered[history]

    return ask


HOST_NOTICEABLE_BYTES = 64 << 20  # tensors of the host that are worth a section


def _noticeable(done: "AllocatorReplay") -> bool:
    return done.peak("requested").bytes >= HOST_NOTICEABLE_BYTES


@once_per_trace
def histories(trace: Trace) -> tuple[History, ...]:
    """The devices of a snapshot or of a trace with memory events, most memory first; the host,
    if a trace has it, last."""
    from pinchpoint.analysis.memory.traced import HOST, traced, traced_devices, traced_replay

    if trace.snapshot is not None:
        snapshot = trace.snapshot
        from pinchpoint.analysis.memory.allocator.replay import devices, replay

        replays = [replay(trace, device) for device in devices(trace)]
    else:
        events = traced(trace)
        if events is None:
            return ()
        snapshot = events.snapshot
        replays = [traced_replay(events, device) for device in traced_devices(events)]
    from pinchpoint.analysis.memory.owners.stacks import stack_signs

    signs = stack_signs(snapshot.stacks)
    replays = [r for r in replays if r.device != HOST or _noticeable(r)]
    found = [_history(done, signs, snapshot) for done in replays]
    return tuple(sorted(found, key=lambda h: (h.device == HOST, -h.replay.peak("requested").bytes)))


def recorded_histories(trace: Trace) -> tuple[History, ...]:
    """Devices with at least one recorded event."""
    return tuple(h for h in histories(trace) if len(h.replay))


def _history(done: "AllocatorReplay", signs: "StackSigns", snapshot: MemorySnapshot) -> History:
    from pinchpoint.analysis.memory.owners.phases import phases, steps

    in_phases = phases(done, signs, snapshot)
    from pinchpoint.analysis.memory.owners.owners import owners

    return History(
        device=done.device,
        replay=done,
        signs=signs,
        phases=in_phases,
        steps=steps(done, in_phases, snapshot),
        owners=owners(done, in_phases, signs),
        snapshot=snapshot,
    )


# ------------------------------------------------------------------------------------------------
# The layout of the heap at one moment: what is live, and where the free memory lies.


@dataclass(frozen=True, eq=False)
class Heap:
    """Ranges held from the driver, sorted by address; live blocks and holes inside them.

    ``blocks`` are positions in Lives, sorted by address, ``block_range`` the range of each; a hole
    is a free stretch: it lies in ``hole_range``.
    """

    ranges: "tuple[Range, ...]"
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
    held = (h.range for h in replay.held if h.birth <= event < h.death)
    ranges = _joined(sorted(held, key=lambda r: r.start))
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


def _joined(held: "list[Range]") -> "tuple[Range, ...]":
    """Neighbours in one expandable segment as one range, since blocks lie across them."""
    out: list[Range] = []
    for piece in held:
        before = out[-1] if out else piece
        if before.mapped and piece == replace(before, start=before.end, end=piece.end):
            out[-1] = replace(before, end=piece.end)
        else:
            out.append(piece)
    return tuple(out)


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


# ------------------------------------------------------------------------------------------------
# The curves and the tree of stacks, thinned to what a picture can show.


POINTS = 900  # of a curve: more than a screen has columns to tell apart


@dataclass(frozen=True, eq=False)
class MemoryTimeline:
    """Requested bytes of each category, and reserved bytes, after chosen events: of each stretch of
    events the one where most is requested, so that every peak is kept."""

    event: Ints
    by_category: "dict[MemoryCategory, Ints]"
    reserved: Ints
    phase: Ints


def timeline(history: History, points: int = POINTS) -> MemoryTimeline:
    """Curves of at most ``points`` points."""
    count = len(history.replay)
    edges = np.unique(np.linspace(0, count, min(points, count) + 1).astype(np.int64))
    chosen = np.array(
        [
            a + int(history.replay.requested[a:b].argmax())
            for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        ],
        np.int64,
    )
    by_category = {}
    from pinchpoint.analysis.memory.owners.owners import MemoryCategory

    for category in MemoryCategory:
        rows = np.flatnonzero(history.owners.is_(category))
        change = np.zeros(count + 2, np.int64)
        np.add.at(change, history.blocks.birth[rows] + 1, history.blocks.requested[rows])
        np.add.at(change, history.blocks.death[rows] + 1, -history.blocks.requested[rows])
        by_category[category] = np.cumsum(change)[1:][chosen]
    return MemoryTimeline(
        event=chosen,
        by_category=by_category,
        reserved=history.replay.reserved[chosen],
        phase=history.phases.of_event[chosen].astype(np.int64),
    )


@dataclass
class Node:
    """A frame of the tree and the bytes allocated below it."""

    name: str
    bytes: int = 0
    blocks: int = 0
    foreign: bool = False  # not the user's own code
    children: dict[str, "Node"] = field(default_factory=dict)


def stack_tree(history: History, event: int) -> Node:
    """Live blocks right after an event by stack, the program's start first."""
    blocks = history.blocks
    rows = np.flatnonzero(blocks.alive(event))
    stack = np.where(blocks.has_stack[rows], blocks.stack[rows], -1)
    top = Node("all")
    kinds, inverse, counts = np.unique(stack, return_inverse=True, return_counts=True)
    sizes = np.bincount(inverse.reshape(-1), blocks.requested[rows], len(kinds))
    for one, total, count in zip(
        kinds.tolist(), sizes.astype(np.int64).tolist(), counts.tolist(), strict=True
    ):
        at = top
        at.bytes += total
        at.blocks += count
        for name, foreign in _path(history, one):
            at = at.children.setdefault(name, Node(name, foreign=foreign))
            at.bytes += total
            at.blocks += count
    return top


def _path(history: History, stack: int) -> list[tuple[str, bool]]:
    """The Python frames of a stack from the program's start on, and whether each is a library's."""
    from pinchpoint.analysis.memory.owners.stacks import is_python

    frames = [f for f in history.signs.stacks[stack] if is_python(f)] if stack >= 0 else []
    if not frames:
        node = history.signs.operation(stack) if stack >= 0 else None
        unknown = "no Python frame (autograd, or before recording)"
        return [(name, False) for name in (unknown, node) if name]
    calls = ("_call_impl", "_wrapped_call_impl")
    return [
        (
            f"{f.file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{f.line} {f.function}",
            owner_of(f.file) != Owner.USER,
        )
        for f in reversed(frames)
        if f.function not in calls
    ]
