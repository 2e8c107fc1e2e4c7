"""Pairs the events of an allocator into blocks with a birth and a death.

Everything is vectorised over events: ten million events take seconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pinchpoint.frozen import dataclass
from pinchpoint.trace import AllocatorAction, BlockState, MemorySnapshot, Table
from pinchpoint.trace.arrays import Ints, Mask

BEFORE = -1  # a birth before the first recorded event


@dataclass(frozen=True, eq=False)
class Lives:
    """One row a block, in order of birth. Times are positions of events of the device.

    A block exists after event ``birth`` and until event ``death``; ``freed`` is when the program
    let go of it (later streams may still use it). ``BEFORE`` is a birth before the recording, the
    number of events a death after it. ``stack`` has a meaning where ``has_stack``, ``freed_by``
    (the stack that let go) where ``has_freed_by``.
    """

    address: NDArray[np.uint64]
    requested: Ints
    birth: Ints
    freed: Ints
    death: Ints
    stream: NDArray[np.uint64]
    stack: NDArray[np.int32]
    has_stack: Mask
    freed_by: NDArray[np.int32]
    has_freed_by: Mask
    anomalies: int  # events that contradict one another: some were not recorded

    def __len__(self) -> int:
        return len(self.birth)

    @property
    def before(self) -> Mask:
        """Blocks that existed before the first recorded event."""
        result: Mask = self.birth == BEFORE
        return result

    def born_within(self, first: int, end: int) -> Ints:
        """Blocks born at events ``[first, end)``; found at once, because births are in order."""
        return np.arange(*np.searchsorted(self.birth, (first, end)))

    def alive(self, event: int) -> Mask:
        """Blocks that exist right after an event."""
        return (self.birth <= event) & (event < self.death)


def lives(events: Table, snapshot: MemorySnapshot, device: int) -> Lives:
    """The blocks of one device; ``events`` are that device's, in order."""
    paired = _pair(events)
    kept = _kept(paired, snapshot, device) if snapshot.complete else _no_rows()
    joined = _join(paired, kept, snapshot, events)
    if len(joined) and joined.birth[0] != BEFORE and (joined.birth[1:] > joined.birth[:-1]).all():
        return joined
    before = np.flatnonzero(joined.birth == BEFORE)
    after = np.flatnonzero(joined.birth != BEFORE)
    before = before[np.argsort(joined.address[before], kind="stable")]
    after = after[np.argsort(joined.birth[after], kind="stable")]  # no two are born at one event
    return _take(joined, np.concatenate((before, after)))


def _take(all_lives: Lives, rows: Ints) -> Lives:
    columns = {
        field.name: getattr(all_lives, field.name)[rows]
        for field in fields(Lives)
        if field.name != "anomalies"
    }
    return Lives(**columns, anomalies=all_lives.anomalies)


@dataclass(frozen=True, eq=False)
class _Paired:
    """Blocks with at least one event: the rows of their events, or -1."""

    address: NDArray[np.uint64]
    alloc: Ints
    requested: Ints
    completed: Ints
    successor: Ints  # the next alloc at the same address, or -1
    anomalies: int


CODES = (
    AllocatorAction.ALLOC,
    AllocatorAction.FREE_REQUESTED,
    AllocatorAction.FREE_COMPLETED,
)
Pairs = tuple[NDArray[np.uint64], Ints, Ints, Ints, Ints, int]
paired: Callable[[Any, Any, Sequence[int]], Pairs]


def _pair(events: Table) -> _Paired:
    """In any order of the blocks."""
    address, alloc, requested, completed, successor, doubled = paired(
        np.ascontiguousarray(events["action"]), np.ascontiguousarray(events["address"]), CODES
    )
    unfinished = int(((completed < 0) & (successor >= 0)).sum())
    return _Paired(address, alloc, requested, completed, successor, doubled + unfinished)


def plain_paired(action: Any, address: Any, codes: Sequence[int]) -> Pairs:
    """What ``_Paired`` has, by address, and how many events say again what another has said.

    ``codes`` are those of an allocation, of a request to free it, and of its end.
    """
    rows = np.flatnonzero(np.isin(action, codes))
    order = np.argsort(address[rows], kind="stable")
    rows = rows[order]
    address, kind = address[rows], action[rows]
    if not len(rows):
        none = np.zeros(0, np.int64)
        return address, none, none, none, none, 0
    is_alloc, wanted, done = (kind == code for code in codes)
    first = np.append(True, address[1:] != address[:-1])
    run = np.cumsum(first | is_alloc) - 1
    count = int(run[-1]) + 1
    alloc, requested, completed = (np.full(count, -1, np.int64) for _ in range(3))
    alloc[run[is_alloc]] = rows[is_alloc]
    requested[run[wanted]] = rows[wanted]
    completed[run[done]] = rows[done]
    of_run = address[np.flatnonzero(first | is_alloc)]
    follows = np.append(of_run[1:] == of_run[:-1], False)
    successor = np.where(follows, np.append(alloc[1:], -1), -1)
    doubled = int(wanted.sum() - (requested >= 0).sum() + done.sum() - (completed >= 0).sum())
    return of_run, alloc, requested, completed, successor, doubled


try:
    paired = import_module("pinchpoint.analysis.memory.allocator._blocks").paired
except ImportError:  # installed without a compiler
    paired = plain_paired


def _kept(paired: _Paired, snapshot: MemorySnapshot, device: int) -> Ints:
    """Blocks of the end that no event mentions: they were there before and stayed."""
    blocks = snapshot.blocks
    of_device = snapshot.segments["device"][blocks["segment"]] == device
    live = of_device & (blocks["state"] != BlockState.INACTIVE)
    open_now = paired.address[(paired.completed < 0) & (paired.successor < 0)]
    return np.flatnonzero(live & ~np.isin(blocks["address"], open_now))


def _no_rows() -> Ints:
    return np.zeros(0, np.int64)


def _join(paired: _Paired, kept: Ints, snapshot: MemorySnapshot, events: Table) -> Lives:
    """One row for each pair and for each block that was kept throughout."""
    blocks, end, more = snapshot.blocks, len(events), len(kept)
    source = np.where(paired.alloc >= 0, paired.alloc, paired.completed)
    source = np.where(source >= 0, source, paired.requested)
    death = np.where(paired.successor >= 0, paired.successor, end)
    death = np.where(paired.completed >= 0, paired.completed, death)
    let_go_before = (paired.requested < 0) & (paired.alloc < 0) & (paired.completed >= 0)
    freed = np.where(paired.requested >= 0, paired.requested, death)
    freed = np.where(let_go_before, BEFORE, freed)
    pending = blocks["state"][kept] == BlockState.PENDING_FREE
    asked = np.where(
        blocks.known("requested_bytes")[kept],
        blocks["requested_bytes"][kept],
        blocks["bytes"][kept],
    )
    stack, stack_known = events["stack"], events.known("stack")
    streams = snapshot.segments["stream"][blocks["segment"][kept]]
    born = paired.alloc >= 0
    return Lives(
        address=_chain(paired.address, blocks["address"][kept]),
        requested=_chain(events["bytes"][source], asked),
        birth=_chain(np.where(born, paired.alloc, BEFORE), np.full(more, BEFORE)),
        freed=_chain(freed, np.where(pending, BEFORE, end)),
        death=_chain(death, np.full(more, end)),
        stream=_chain(events["stream"][source], streams),
        stack=_chain(stack[paired.alloc], blocks["stack"][kept]),
        has_stack=_chain(born & stack_known[paired.alloc], blocks.known("stack")[kept]),
        freed_by=_chain(stack[paired.requested], np.zeros(more, np.int32)),
        has_freed_by=_chain(
            (paired.requested >= 0) & stack_known[paired.requested], np.zeros(more, np.bool_)
        ),
        anomalies=paired.anomalies,
    )


def chained(first: Lives, second: Lives) -> Lives:
    """The blocks of both, first those of ``first``."""
    names = [field.name for field in fields(Lives) if field.name != "anomalies"]
    columns = {n: np.concatenate((getattr(first, n), getattr(second, n))) for n in names}
    return Lives(**columns, anomalies=first.anomalies + second.anomalies)


def _chain(first: Any, second: Any) -> Any:
    return np.concatenate((first, second)) if len(second) else first
