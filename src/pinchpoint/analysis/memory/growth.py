"""Blocks that a step leaves behind: growth from step to step, and who causes it.

A block is left behind if it is born in one step and still there when the next one has ended. A
stack leaks if it does so in three steps or more, regularly and up to the end, and most of it is
there to the end; growth that stops is a cache that fills, and what goes a step later a queue.
"""

from dataclasses import replace

import numpy as np

from pinchpoint.analysis.memory.history import History, once_per_history
from pinchpoint.analysis.memory.owners.owners import MemoryCategory
from pinchpoint.analysis.memory.owners.phases import Phase
from pinchpoint.frozen import dataclass
from pinchpoint.trace import Frame
from pinchpoint.trace.arrays import Ints, Mask

# What a run of a hundred thousand steps would lose: below a GiB nobody notices.
MATERIAL_BYTES_PER_STEP = (1 << 30) // 100_000
MIN_STEPS = 3  # fewer do not tell growth from warm-up
INPUT_RATIO = 0.05  # of a graph; more is kept for its own sake
GRAPH_BLOCK_RATIO = 0.3  # a kept graph keeps most of a pass's blocks; kept results one of many
_OWNED = (
    MemoryCategory.PARAMETER,
    MemoryCategory.BUFFER,
    MemoryCategory.OPTIMIZER_STATE,
    MemoryCategory.WORKSPACE,
)


@dataclass(frozen=True)
class Leak:
    """What each step leaves behind through one place of the program.

    ``kind``: *graph* (results with everything that their backward pass would need), *results*
    (outputs of a model without a graph), *other*. ``blocks`` are positions in Lives.
    """

    kind: str
    bytes_per_step: int
    allocated_per_step: int  # the same as the allocator rounds it up
    blocks_per_step: float
    steps: int
    total_bytes: int
    place: Frame | None
    operation: str | None
    blocks: Ints


@dataclass(frozen=True, eq=False)
class Growth:
    """``floor`` is the least that is requested within each step; ``why_not`` says why leaks could
    not be looked for."""

    floor: Ints
    leaks: tuple[Leak, ...]
    why_not: str = ""

    @property
    def too_short(self) -> bool:
        """Whether more steps would do."""
        return len(self.floor) < MIN_STEPS + 1

    @property
    def bytes_per_step(self) -> int:
        """The median growth of the floor, first step left out."""
        steady = np.diff(self.floor[1:])
        return int(np.median(steady)) if len(steady) else 0


@once_per_history
def growth(history: History) -> Growth:
    """Floors of all steps, and the leaks."""
    steps = history.steps
    floor = np.array(
        [history.replay.requested[a:b].min() for a, b in zip(steps.first, steps.end, strict=True)],
        np.int64,
    )
    if len(steps) < MIN_STEPS + 1:
        return Growth(
            floor, (), f"{len(steps)} steps recorded; growth needs {MIN_STEPS + 1} or more"
        )
    nothing_dies = len(history.blocks.death) > 0 and (history.blocks.death > history.last).all()
    if history.device >= 0 and nothing_dies:  # on a host a few kept tensors may be all there is
        return Growth(floor, (), "nothing is ever freed in it, so releases were not recorded")
    stacks = _steady_stacks(history, _left_behind(history))
    if not stacks:
        return Growth(floor, ())
    shared = _lines_that_leave_nothing(history, np.concatenate(stacks))
    groups: dict[tuple[str, Frame | None, bool], list[Ints]] = {}
    for rows in stacks:
        kind, after = _kind(history, rows)
        key = (kind, leaking_line(history, rows, shared), after)
        groups.setdefault(key, []).append(rows)
    leaks = [_leak(history, key, np.concatenate(rows)) for key, rows in groups.items()]
    return Growth(floor, tuple(_with_their_inputs(history, leaks)))


def step_of(history: History, events: Ints) -> Ints:
    """The step that each event lies in, or that ended last before it; -1 before the first."""
    first = np.array(history.steps.first, np.int64)
    result: Ints = np.searchsorted(first, events, "right") - 1
    return result


def _left_behind(history: History) -> Mask:
    """Born in a step that another one follows, and there when that one has ended."""
    blocks = history.blocks
    ends = np.array(history.steps.end)
    step = step_of(history, blocks.birth)
    follows = (step >= 0) & (step + 1 < len(ends))
    next_end = ends[np.minimum(step + 1, len(ends) - 1)]
    left: Mask = follows & (blocks.death >= next_end) & ~history.owners.is_(*_OWNED)
    return left


def _steady_stacks(history: History, left: Mask) -> list[Ints]:
    """Blocks left behind, by stack, where that does not stop."""
    rows = np.flatnonzero(left)
    stack = np.where(history.blocks.has_stack, history.blocks.stack, -1)[rows]
    rows = rows[np.argsort(stack, kind="stable")]
    groups = np.split(rows, np.flatnonzero(np.diff(np.sort(stack))) + 1)
    last = len(history.steps) - 2  # the last step that another one follows
    return [
        mine
        for mine in groups
        if _piles_up(history, mine)
        and _regular(np.unique(step_of(history, history.blocks.birth[mine])), last)
    ]


def _piles_up(history: History, rows: Ints) -> bool:
    """Whether most are there to the end; batches that wait for their step are replaced instead."""
    staying = int((history.blocks.death[rows] >= history.steps.end[-1]).sum())
    return staying >= MIN_STEPS and 2 * staying >= len(rows)


def _regular(seen: Ints, last: int) -> bool:
    """Whether it happens again and again up to the end: every step, or every so many."""
    gaps = np.diff(seen)
    return (
        len(seen) >= MIN_STEPS
        and last - int(seen[-1]) <= int(gaps.max())
        and int(gaps.max()) <= 2 * int(gaps.min())
    )


def _kind(history: History, rows: Ints) -> tuple[str, bool]:
    """What is kept, judged by what else the same forward passes keep."""
    blocks = history.blocks
    born = history.phases.of_event[blocks.birth[rows]]
    if not (born == Phase.FORWARD).any():
        return "other", False
    run = _run_of(history, int(blocks.birth[rows[-1]]))
    following = run + 1 < len(history.phases.runs) and (
        history.phases.runs[run + 1].phase == Phase.BACKWARD
    )
    if following:
        return "graph", True
    return ("graph" if _graph_kept(history, int(blocks.birth[rows[-1]])) else "results"), False


def _graph_kept(history: History, event: int) -> bool:
    """Whether most blocks of the pass that an event lies in outlive their modules."""
    blocks, (first, end) = history.blocks, pass_of(history, event)
    mine = blocks.born_within(first, end)
    kept = blocks.death[mine] >= end
    return len(mine) > 1 and int(kept.sum()) > 1 and kept.mean() > GRAPH_BLOCK_RATIO


def pass_of(history: History, event: int) -> tuple[int, int]:
    """Events of the forward pass around an event: its run, cut where a step begins or ends."""
    return passes_of(history, np.array([event])).pop()


def passes_of(history: History, events: Ints) -> set[tuple[int, int]]:
    """The same for each of many events; each pass once."""
    runs = history.phases.runs
    begins, ends = np.array([(r.first, r.end) for r in runs]).T
    run = np.searchsorted(begins, events, "right") - 1
    begin, end = begins[run], ends[run]
    cuts = np.unique([-1, *history.steps.first, *history.steps.end, np.iinfo(np.int64).max])
    before = cuts[np.searchsorted(cuts, np.minimum(events, end - 1), "right") - 1]
    after = cuts[np.searchsorted(cuts, np.maximum(events, begin), "right")]
    passes = np.maximum(begin, before), np.minimum(end, after)
    return set(zip(*(side.tolist() for side in passes), strict=True))


def _run_of(history: History, event: int) -> int:
    starts = np.array([r.first for r in history.phases.runs])
    return int(np.searchsorted(starts, event, "right") - 1)


def _lines_that_leave_nothing(history: History, leaking: Ints) -> set[Frame]:
    """Lines of the program that allocate in passes of which nothing stays."""
    blocks, signs = history.blocks, history.signs
    step = step_of(history, blocks.birth)
    judged = (step > 0) & (step + 1 < len(history.steps))  # another step shows what stays
    innocent = judged & blocks.has_stack
    for first, end in passes_of(history, blocks.birth[leaking]):
        innocent[blocks.born_within(first, end)] = False
    return {
        frame
        for stack in np.unique(blocks.stack[innocent]).tolist()
        for frame in signs.user_frames(stack)
    }


def leaking_line(history: History, rows: Ints, shared: set[Frame]) -> Frame | None:
    """The innermost line that only what stays goes through; what does not stay shares the lines
    below it."""
    signs = history.signs
    stack = history.stack_of(int(rows[-1]))
    if stack is None:
        return None
    frames = signs.user_frames(stack)
    only = [f for f in frames if f not in shared]
    if only:
        return only[0]
    outside = [f for f in _outside_modules(history, stack) if f in frames]
    return outside[0] if outside else (frames[0] if frames else signs.location(stack))


def _outside_modules(history: History, stack: int) -> list[Frame]:
    """The frames of the program that called the model, innermost first."""
    frames = history.signs.stacks[stack]
    calls = [i for i, f in enumerate(frames) if f.function in ("_call_impl", "_wrapped_call_impl")]
    return list(frames[calls[-1] + 1 :]) if calls else list(frames)


def _with_their_inputs(history: History, leaks: list[Leak]) -> list[Leak]:
    """A kept graph keeps the batch too, which was allocated elsewhere: counted with the graph."""
    ordered = sorted(leaks, key=lambda k: -k.bytes_per_step)
    if not ordered or ordered[0].kind != "graph":
        return ordered
    graph, rest = ordered[0], []
    for leak in ordered[1:]:
        if leak.kind == "other" and leak.bytes_per_step < INPUT_RATIO * graph.bytes_per_step:
            graph = replace(
                graph,
                bytes_per_step=graph.bytes_per_step + leak.bytes_per_step,
                allocated_per_step=graph.allocated_per_step + leak.allocated_per_step,
                blocks_per_step=graph.blocks_per_step + leak.blocks_per_step,
                total_bytes=graph.total_bytes + leak.total_bytes,
                blocks=np.concatenate((graph.blocks, leak.blocks)),
            )
        else:
            rest.append(leak)
    return [graph, *rest]


def _leak(history: History, key: tuple[str, Frame | None, bool], rows: Ints) -> Leak:
    step = step_of(history, history.blocks.birth[rows])
    seen = np.unique(step)
    recent = [rows[step == s] for s in seen[-MIN_STEPS:]]
    asked = [int(history.blocks.requested[r].sum()) for r in recent]
    taken = [int(history.replay.size[r].sum()) for r in recent]
    kind, place, _ = key
    largest = int(rows[history.blocks.requested[rows].argmax()])
    stack = history.stack_of(largest)
    return Leak(
        kind=kind,
        bytes_per_step=int(np.median(asked)),
        allocated_per_step=int(np.median(taken)),
        blocks_per_step=len(rows) / len(seen),
        steps=len(seen),
        total_bytes=int(history.blocks.requested[rows].sum()),
        place=place,
        operation=None if stack is None else history.signs.operation(stack),
        blocks=rows,
    )
