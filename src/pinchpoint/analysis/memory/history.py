"""Everything that later questions need to know about one device, found once per trace."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from pinchpoint.analysis.memory.lives import Lives
from pinchpoint.analysis.memory.owners import Category, Owners, owners
from pinchpoint.analysis.memory.phases import Phases, Steps, phases, steps
from pinchpoint.analysis.memory.replay import Replay, devices, replay
from pinchpoint.analysis.memory.stacks import StackSigns, stack_signs
from pinchpoint.analysis.memory.traced import HOST, traced, traced_devices, traced_replay
from pinchpoint.trace import MemorySnapshot, Trace, once_per_trace

Answer = TypeVar("Answer")


@dataclass(frozen=True, eq=False)
class History:
    """One device: its allocator replayed, its events in phases and steps, its blocks owned."""

    device: int
    replay: Replay
    signs: StackSigns
    phases: Phases
    steps: Steps
    owners: Owners
    snapshot: MemorySnapshot

    @property
    def has_layout(self) -> bool:
        """Whether segments are known, so that free memory can be placed."""
        return bool(self.replay.held)

    @property
    def blocks(self) -> Lives:
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

    def bytes_of(self, event: int) -> dict[Category, int]:
        """Requested bytes of each category right after an event."""
        return self.sum_by_category(self.blocks.alive(event))

    def sum_by_category(self, rows: np.ndarray) -> dict[Category, int]:
        """Requested bytes of some blocks by category."""
        total = np.bincount(
            self.owners.category[rows],
            self.blocks.requested[rows],
            minlength=len(Category) + 1,
        )
        return {category: int(total[category]) for category in Category}

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


def _noticeable(done: Replay) -> bool:
    return done.peak("requested").bytes >= HOST_NOTICEABLE_BYTES


@once_per_trace
def histories(trace: Trace) -> tuple[History, ...]:
    """The devices of a snapshot or of a trace with memory events, most memory first; the host,
    if a trace has it, last."""
    if trace.snapshot is not None:
        snapshot = trace.snapshot
        replays = [replay(trace, device) for device in devices(trace)]
    else:
        events = traced(trace)
        if events is None:
            return ()
        snapshot = events.snapshot
        replays = [traced_replay(events, device) for device in traced_devices(events)]
    signs = stack_signs(snapshot.stacks)
    replays = [r for r in replays if r.device != HOST or _noticeable(r)]
    found = [_history(done, signs, snapshot) for done in replays]
    return tuple(sorted(found, key=lambda h: (h.device == HOST, -h.replay.peak("requested").bytes)))


def recorded_histories(trace: Trace) -> tuple[History, ...]:
    """Devices with at least one recorded event."""
    return tuple(h for h in histories(trace) if len(h.replay))


def _history(done: Replay, signs: StackSigns, snapshot: MemorySnapshot) -> History:
    in_phases = phases(done, signs, snapshot)
    return History(
        device=done.device,
        replay=done,
        signs=signs,
        phases=in_phases,
        steps=steps(done, in_phases, snapshot),
        owners=owners(done, in_phases, signs),
        snapshot=snapshot,
    )
