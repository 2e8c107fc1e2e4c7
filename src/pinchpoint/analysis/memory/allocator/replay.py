"""The allocator of one device, replayed: four exact curves, their peaks, the state at any time.

*requested* is what the program asked for, *allocated* what the blocks that serve it take,
*active* the same including blocks that a stream still uses after they were freed, *reserved* what
the allocator holds from the driver. The names and meanings are those of
``torch.cuda.memory_stats``.
"""

from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np

from pinchpoint.analysis.memory.allocator.block_sizes import BeforeAndAfter, Sizes, rules, sizes
from pinchpoint.analysis.memory.allocator.lives import BEFORE, Lives, lives
from pinchpoint.analysis.memory.allocator.segments import (
    Held,
    held_over_time,
    ranges_at_end,
    ranges_at_start,
    reserved_change,
)
from pinchpoint.frozen import dataclass
from pinchpoint.trace import AllocatorAction, BlockState, MemorySnapshot, Table, Trace
from pinchpoint.trace.arrays import Ints, distinct

Beginning = Literal["whole", "late start", "ring", "late start or ring", "unknown"]


@dataclass(frozen=True)
class Peak:
    """The highest value of a curve and the first event after which it holds; ``at_most`` is above
    ``bytes`` where the recording leaves room. Event -1: before the first event."""

    bytes: int
    at_most: int
    event: int


@dataclass(frozen=True, eq=False)
class AllocatorReplay:
    """The history of one device.

    Curves have one value after each event. ``beginning`` says whether the recording holds the
    history from the first allocation: *late start* (memory existed when recording began), *ring*
    (older events were overwritten). ``doubts`` are sentences about what does not add up.
    """

    device: int
    events: Table
    time_us: Ints | None
    blocks: Lives
    size: Ints
    slack: Ints
    held: tuple[Held, ...]
    requested: Ints
    allocated: Ints
    active: Ints
    reserved: Ints
    base: tuple[int, int, int, int]  # the four values before the first event
    beginning: Beginning
    doubts: tuple[str, ...]
    slack_curve: Ints

    def __len__(self) -> int:
        return len(self.events)

    def peak(self, curve: Literal["requested", "allocated", "active", "reserved"]) -> Peak:
        """The peak of a curve within the recorded window."""
        known = _peaks.setdefault(self, {})
        if curve not in known:
            known[curve] = self._highest(curve)
        return known[curve]

    def _highest(self, curve: Literal["requested", "allocated", "active", "reserved"]) -> Peak:
        names = ("requested", "allocated", "active", "reserved")
        values: Ints = getattr(self, curve)
        base = self.base[names.index(curve)]
        slack = self.slack_curve if curve in ("allocated", "active") else None
        if not len(values):
            return Peak(base, base, BEFORE)
        event = int(values.argmax())
        if values[event] <= base:
            return Peak(base, base, BEFORE)
        most = int(values[event] if slack is None else (values + slack).max())
        return Peak(int(values[event]), most, event)


_peaks: "WeakKeyDictionary[AllocatorReplay, dict[str, Peak]]" = WeakKeyDictionary()


def devices(trace: Trace) -> tuple[int, ...]:
    """Devices that the snapshot says anything about."""
    snapshot = trace.snapshot
    if snapshot is None:
        return ()
    parts = (snapshot.events, snapshot.segments)
    return tuple(int(d) for d in np.union1d(*(distinct(part["device"]) for part in parts)))


def replay(trace: Trace, device: int) -> AllocatorReplay:
    """Replay one device of a trace that has a snapshot."""
    snapshot = trace.snapshot
    assert snapshot is not None
    events = _of_device(snapshot.events, device)
    blocks = lives(events, snapshot, device)
    at_end = ranges_at_end(snapshot, device, trace.names) if snapshot.complete else []
    start = ranges_at_start(events, at_end)
    end_bytes = _end_bytes(snapshot, device)
    found = sizes(
        events, blocks, BeforeAndAfter(start, at_end, end_bytes), rules(snapshot.settings)
    )
    reserved_before = sum(r.end - r.start for r in start)
    curves = _curves(blocks, found, len(events))
    reserved = reserved_before + np.cumsum(reserved_change(events))
    base = (*(int(c[0]) for c in curves[:3]), reserved_before)
    return AllocatorReplay(
        device=device,
        events=events,
        time_us=events["time_us"] if events.known("time_us").all() else None,
        blocks=blocks,
        size=found.bytes,
        slack=found.slack,
        held=held_over_time(events, at_end, start),
        requested=curves[0][1:],
        allocated=curves[1][1:],
        active=curves[2][1:],
        reserved=reserved,
        base=(base[0], base[1], base[2], base[3]),
        beginning=_beginning(snapshot, events, blocks),
        doubts=tuple(_doubts(snapshot, events, blocks, found, end_bytes)),
        slack_curve=curves[3][1:],
    )


def _of_device(events: Table, device: int) -> Table:
    mine = events["device"] == device
    return events if mine.all() else events.take(mine)


def _curves(blocks: Lives, found: Sizes, events: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Requested, allocated, active bytes and slack, before the first event and after each."""
    return (
        curve(blocks.birth, blocks.death, blocks.requested, events),
        curve(blocks.birth, blocks.freed, found.bytes, events),
        curve(blocks.birth, blocks.death, found.bytes, events),
        curve(blocks.birth, blocks.death, found.slack, events),
    )


def curve(birth: Ints, death: Ints, weight: Ints, events: int) -> Ints:
    """Sum of the weights of what is alive; shape ``(events + 1,)``, value 0 is before event 0."""
    change = np.zeros(events + 2, np.int64)
    if not weight.any():
        return change[:-1]
    np.add.at(change, birth + 1, weight)
    np.add.at(change, np.maximum(death + 1, birth + 1), -weight)
    total: Ints = np.cumsum(change)[:-1]
    return total


def _end_bytes(snapshot: MemorySnapshot, device: int) -> dict[int, int]:
    blocks = snapshot.blocks
    live = blocks["state"] != BlockState.INACTIVE
    live &= snapshot.segments["device"][blocks["segment"]] == device
    return dict(zip(blocks["address"][live].tolist(), blocks["bytes"][live].tolist(), strict=True))


def _beginning(snapshot: MemorySnapshot, events: Table, blocks: Lives) -> Beginning:
    """A block from before the recording that has a stack was allocated while recording: its event
    was overwritten. One without a stack was allocated before recording began."""
    before = blocks.before
    if not before.any():
        return "whole" if len(events) and snapshot.complete else "unknown"
    kept = before & (blocks.death == len(events))
    with_stack = bool((kept & blocks.has_stack).any())
    without = bool((kept & ~blocks.has_stack).any())
    records_stacks = bool(events.known("stack").any())
    if not records_stacks or not kept.any():
        return "late start or ring" if len(events) else "unknown"
    if with_stack:
        return "late start or ring" if without and not _marked_earlier(snapshot, events) else "ring"
    return "late start"


def _marked_earlier(snapshot: MemorySnapshot, events: Table) -> bool:
    times = [m.time_us for m in snapshot.marks if m.time_us is not None]
    first = events.value("time_us", 0)
    return bool(times) and first is not None and min(times) < first


def _doubts(
    snapshot: MemorySnapshot,
    events: Table,
    blocks: Lives,
    found: Sizes,
    end_bytes: dict[int, int],
) -> list[str]:
    out = []
    if not snapshot.complete:
        out.append("the file is cut off: what was live before its first event is not known")
    if blocks.anomalies:
        out.append(
            f"{blocks.anomalies} events contradict one another: some were not recorded "
            "(skip_actions?), so sums may be too high"
        )
    alive = blocks.death == len(events)
    pairs = zip(blocks.address[alive].tolist(), found.bytes[alive].tolist(), strict=True)
    wrong = sum(end_bytes.get(address) != size for address, size in pairs)
    if snapshot.complete and (wrong or found.unplaced):
        out.append(
            f"{wrong} of {int(alive.sum())} blocks have another size at the end than replayed, "
            f"{found.unplaced} were placed where the replay had no room: allocated bytes are near, "
            "not exact"
        )
    if not (events["action"] == AllocatorAction.ALLOC).any():
        out.append("the recording has no events: only the moment of the dump is known")
    return out
