"""What is worth knowing about a recording and is no fault."""

from collections.abc import Iterator

import numpy as np

from pinchpoint.analysis.memory.allocator.replay import curve
from pinchpoint.analysis.memory.growth import step_of
from pinchpoint.analysis.memory.history import History
from pinchpoint.analysis.memory.owners.owners import MemoryCategory
from pinchpoint.analysis.memory.shortage import size
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import distinct


@dataclass(frozen=True)
class MemoryFact:
    """A fact with a stable id."""

    id: str
    text: str
    bytes: int | None = None


_BEGINNINGS = {
    "late start": "recording began after {} had been allocated: where that came from is not known",
    "ring": "older events were overwritten (max_entries): {} were allocated before the first one "
    "that is left, and the peak may lie before it",
    "late start or ring": "{} were allocated before the first recorded event, and the peak may lie "
    "before it",
}


def facts(trace: Trace, history: History) -> tuple[MemoryFact, ...]:
    """All facts of one device."""
    return (
        *_beginning(history),
        *_optimizer_state(history),
        *_checkpointed(history),
        *_expandable(history),
        *_private_pools(history),
        *_pending(history),
        *_notes(trace, history),
    )


def _beginning(history: History) -> Iterator[MemoryFact]:
    text = _BEGINNINGS.get(history.replay.beginning)
    if text and len(history.replay):
        base = history.replay.base[0]
        id_ = history.replay.beginning.replace(" ", "-")
        yield MemoryFact(id_, text.format(size(base)), base)


def _optimizer_state(history: History) -> Iterator[MemoryFact]:
    state = history.owners.is_(MemoryCategory.OPTIMIZER_STATE) & ~history.blocks.before
    total = int(history.blocks.requested[state].sum())
    if not total or not len(history.steps):
        return
    step = step_of(history, history.blocks.birth[state])
    born = sorted({int(s) for s in step if s >= 0})
    parameters = int(history.blocks.requested[history.owners.is_(MemoryCategory.PARAMETER)].sum())
    ratio = f", {total / parameters:.1f} × the parameters" if parameters else ""
    if born:
        where = f"step {born[0]}" if len(born) == 1 else f"steps {born[0]} to {born[-1]}"
        yield MemoryFact(
            "optimizer-state-created",
            f"the optimizer created {size(total)} of state in {where}{ratio}",
            total,
        )


def _checkpointed(history: History) -> Iterator[MemoryFact]:
    again = history.owners.recomputed
    if again.any() and len(history.steps):
        total = int(history.blocks.requested[again].sum()) // len(history.steps)
        yield MemoryFact(
            "checkpointing",
            f"activation checkpointing is on: {size(total)} a step are computed again in the "
            "backward pass",
            total,
        )


def _expandable(history: History) -> Iterator[MemoryFact]:
    if any(h.range.mapped for h in history.replay.held):
        yield MemoryFact("expandable-segments", "expandable segments are on")


def _private_pools(history: History) -> Iterator[MemoryFact]:
    pools: dict[str, int] = {}
    for held in history.replay.held:
        if held.range.pool is not None and held.death == len(history.replay):
            at = held.range
            pools[held.range.pool] = pools.get(held.range.pool, 0) + at.end - at.start
    for pool, total in sorted(pools.items()):
        yield MemoryFact(
            "private-pool",
            f"private pool ({pool}), as CUDA graphs use: {size(total)} reserved for it alone",
            total,
        )


def _pending(history: History) -> Iterator[MemoryFact]:
    blocks, count = history.blocks, len(history.replay)
    # The next event is when most frees complete.
    waiting = np.flatnonzero(blocks.death > blocks.freed + 1)
    if not len(waiting):
        return
    ends = (blocks.freed[waiting], blocks.death[waiting])
    most = int(curve(*ends, history.replay.size[waiting], count).max(initial=0))
    streams = len(distinct(history.replay.events["stream"]))
    if most > 0:
        yield MemoryFact(
            "pending-frees",
            f"up to {size(most)} had been freed while a stream still used them (record_stream); "
            f"{streams} streams allocate",
            most,
        )


def _notes(trace: Trace, history: History) -> Iterator[MemoryFact]:
    events = history.replay.events
    known = events.known("note")
    names, counts = np.unique(events["note"][known], return_counts=True)
    for name, count in zip(names.tolist(), counts.tolist(), strict=True):
        yield MemoryFact("note", f"{count} events carry the note {trace.names[name]!r}")
