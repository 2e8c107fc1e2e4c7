"""Which part of a training step each event belongs to, and where the steps begin and end."""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.memory.allocator.replay import AllocatorReplay
from pinchpoint.analysis.memory.owners.stacks import Sign, StackSigns, common_root
from pinchpoint.frozen import dataclass
from pinchpoint.trace import AllocatorAction, MemorySnapshot
from pinchpoint.trace.arrays import Codes, Mask

STEP_MARK = "ProfilerStep#"
OPTIMIZER_MARK = "Optimizer.step#"
OPTIMIZER_MARKS = "Optimizer."  # also Optimizer.zero_grad#; torch.optim sets them itself


class Phase(IntEnum):
    """What the program was doing."""

    UNKNOWN = 0  # no stacks were recorded
    SETUP = 1  # before the first forward pass
    OUTSIDE = 2  # between passes: loading a batch, metrics, logging
    FORWARD = 3
    BACKWARD = 4
    OPTIMIZER = 5


@dataclass(frozen=True)
class Run:
    """Consecutive events of one phase: ``[first, end)``."""

    phase: Phase
    first: int
    end: int


@dataclass(frozen=True, eq=False)
class Phases:
    """``of_event`` has a Phase for each event of the replay; ``runs`` are its runs."""

    of_event: Codes
    runs: tuple[Run, ...]

    def of(self, phase: Phase) -> tuple[Run, ...]:
        """The runs of one phase, in order."""
        return tuple(r for r in self.runs if r.phase == phase)


@dataclass(frozen=True)
class EventSteps:
    """Steps as ranges of events ``[first, end)``; ``how`` says what marked them."""

    how: str
    first: tuple[int, ...] = ()
    end: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.first)


def phases(replay: AllocatorReplay, signs: StackSigns, snapshot: MemorySnapshot) -> Phases:
    """Phases from the stacks of allocations and frees.

    The autograd thread has no Python frame, unless it calls back into Python; then its outermost
    frame lies inside PyTorch, or is not the one that the rest of the program shares.
    """
    events = replay.events
    of_event = np.zeros(len(events), np.uint8)
    known = events.known("stack")
    if not len(events) or not known.any() or not signs.has(Sign.PYTHON | Sign.OPERATOR).any():
        return Phases(of_event, _runs(of_event))
    stack = np.where(known, events["stack"], 0)
    strong = _strong(signs, common_root(signs, events["stack"][known]))[stack]
    memory = events["action"] <= AllocatorAction.SEGMENT_UNMAP
    strong[~known | ~memory] = 0
    for first, end in _marked(replay, snapshot, OPTIMIZER_MARKS):
        strong[first:end][strong[first:end] == 0] = Phase.OPTIMIZER
    begins = [first for first, _ in _marked(replay, snapshot, STEP_MARK)]
    filled = _carry_forward(strong, begins)
    inside = (
        (strong != 0)
        | ~known
        | ((filled == Phase.FORWARD) & ~_seen_before_any_pass(strong, stack, known))
    )
    of_event = np.where(inside, filled, Phase.OUTSIDE).astype(np.uint8)
    of_event = _until_first_pass(of_event, strong)
    return Phases(of_event, _runs(of_event))


def _strong(signs: StackSigns, main: int) -> Codes:
    """The phase that a stack proves by itself; 0 where it proves nothing."""
    out = np.zeros(len(signs.sign), np.uint8)
    python = signs.has(Sign.PYTHON)
    elsewhere = python & (signs.root != main) & (main >= 0) & ~signs.has(Sign.OPTIMIZER)
    if not python.any():  # a trace without stacks: what is not backward is forward
        out[signs.has(Sign.OPERATOR)] = Phase.FORWARD
    out[signs.has(Sign.MODULE_CALL)] = Phase.FORWARD
    no_python = ~python & (python.any() | ~signs.has(Sign.OPERATOR))
    out[no_python | signs.other_thread | elsewhere | signs.has(Sign.ENGINE)] = Phase.BACKWARD
    stepping = signs.has(Sign.OPTIMIZER | Sign.ZERO_GRAD)
    out[stepping & ~signs.other_thread & ~signs.has(Sign.ENGINE)] = Phase.OPTIMIZER
    out[signs.has(Sign.MOVE | Sign.BUILD) & ~signs.has(Sign.MODULE_CALL)] = Phase.SETUP
    return out


def _carry_forward(strong: Codes, begins: list[int]) -> Codes:
    """Events that prove nothing belong to the last phase that was proven since a step began."""
    stop = np.zeros(len(strong), np.bool_)
    stop[begins] = True
    at = np.where((strong != 0) | stop, np.arange(len(strong)), 0)
    return strong[np.maximum.accumulate(at)]


def _seen_before_any_pass(strong: Codes, stack: NDArray[np.int32], known: Mask) -> Mask:
    """Stacks that prove nothing and came before the first forward pass load the batch: they do
    so in every later step, also where nothing else separates one pass from the next."""
    passes = np.isin(strong, (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER))
    first = int(passes.argmax()) if passes.any() else len(strong)
    early = np.unique(stack[:first][(strong[:first] == 0) & known[:first]])
    result: Mask = np.isin(stack, early) & (strong == 0)
    return result


def _until_first_pass(of_event: Codes, strong: Codes) -> Codes:
    """Everything before the first pass of the model is setup, but for the batch of that pass."""
    passes = np.isin(strong, (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER))
    first = int(passes.argmax()) if passes.any() else len(strong)
    built = np.flatnonzero(strong[:first] == Phase.SETUP)
    if len(built):
        of_event[: built[-1] + 1] = Phase.SETUP
    return of_event


def _runs(of_event: Codes) -> tuple[Run, ...]:
    if not len(of_event):
        return ()
    starts = np.flatnonzero(np.append(True, of_event[1:] != of_event[:-1]))
    ends = np.append(starts[1:], len(of_event))
    return tuple(
        Run(Phase(int(of_event[a])), int(a), int(b)) for a, b in zip(starts, ends, strict=True)
    )


def steps(replay: AllocatorReplay, found: Phases, snapshot: MemorySnapshot) -> EventSteps:
    """Steps from the profiler's marks, else from those of the optimizer, else from the phases."""
    marked = _marked(replay, snapshot, STEP_MARK)
    if len(marked) > 1:
        return EventSteps("the profiler's step marks", *_ranges(marked))
    ends = [end for _, end in _marked(replay, snapshot, OPTIMIZER_MARK)]
    if len(ends) > 1:
        return EventSteps("Optimizer.step marks", *_between(ends))
    ends = _last_of_each_group(found, Phase.OPTIMIZER)
    if len(ends) > 1:
        return EventSteps("runs of the optimizer", *_between(ends))
    ends = [r.end for r in found.of(Phase.BACKWARD)]
    if len(ends) > 1:
        return EventSteps("backward passes", *_between(ends))
    ends = [r.end for r in found.of(Phase.FORWARD)]
    if len(ends) > 1:
        return EventSteps("forward passes", *_between(ends))
    return EventSteps("none found")


def _ranges(marked: list[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(a for a, _ in marked), tuple(b for _, b in marked)


def _between(ends: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (0, *ends[:-1]), tuple(ends)


def _last_of_each_group(found: Phases, phase: Phase) -> list[int]:
    """Ends of the runs of a phase, those without a backward pass between them counted once."""
    ends: list[int] = []
    separated = True
    for run in found.runs:
        if run.phase == Phase.BACKWARD:
            separated = True
        elif run.phase == phase:
            if separated:
                ends.append(run.end)
            else:
                ends[-1] = run.end
            separated = False
    return ends


def _marked(
    replay: AllocatorReplay, snapshot: MemorySnapshot, prefix: str
) -> list[tuple[int, int]]:
    """Event ranges of the named marks that lie inside the recorded window."""
    if replay.time_us is None or not len(replay):
        return []
    out: list[tuple[int, int]] = []
    begin: dict[str, int] = {}
    for mark in snapshot.marks:
        if not mark.name.startswith(prefix) or mark.time_us is None:
            continue
        at = int(np.searchsorted(replay.time_us, mark.time_us))
        if mark.begins:
            begin[mark.name] = at
        elif mark.name in begin:
            first = begin.pop(mark.name)
            if at > first:
                out.append((first, at))
    out += [(first, len(replay)) for first in begin.values() if first < len(replay)]  # cut off
    return sorted(out)
