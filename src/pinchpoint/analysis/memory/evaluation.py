"""Passes that record a graph for a backward pass that never comes."""

from dataclasses import dataclass

import numpy as np

from pinchpoint.analysis.memory.growth import growth
from pinchpoint.analysis.memory.history import History, once_per_history
from pinchpoint.analysis.memory.owners.owners import MemoryCategory
from pinchpoint.analysis.memory.owners.phases import Phase, Run
from pinchpoint.trace import Frame
from pinchpoint.trace.arrays import Ints

MIN_KEPT_BLOCKS = 4  # a model's outputs alone are fewer
GRAPH_RATIO = 0.5  # of a pass's blocks: without a graph only the results outlive their modules


@dataclass(frozen=True)
class UnusedGraphs:
    """Forward passes whose activations are kept and never used. ``peak_bytes`` of them are alive
    at the worst moment, ``event``; the results themselves are left out."""

    passes: int
    peak_bytes: int
    event: int
    place: Frame | None


@once_per_history
def unused_graphs(history: History) -> UnusedGraphs | None:
    """None if every pass either runs backward or keeps no graph."""
    leaks = [leak.blocks for leak in growth(history).leaks if leak.kind == "graph"]
    leaking = set(history.blocks.stack[np.concatenate(leaks)].tolist()) if leaks else set()
    kept = [rows for run in _without_backward(history) if len(rows := _kept(history, run, leaking))]
    if not kept:
        return None
    rows = np.concatenate(kept)
    blocks = history.blocks
    change = np.zeros(len(history.replay) + 2, np.int64)
    np.add.at(change, blocks.birth[rows] + 1, blocks.requested[rows])
    np.add.at(change, blocks.death[rows] + 1, -blocks.requested[rows])
    curve = np.cumsum(change)[1:-1]
    event = int(curve.argmax())
    return UnusedGraphs(len(kept), int(curve[event]), event, _place(history, rows))


def _without_backward(history: History) -> list[Run]:
    """Forward runs that no backward pass follows; the last one may still get its own."""
    runs = history.phases.runs
    return [
        run
        for run, following in zip(runs, (*runs[1:], None), strict=False)
        if run.phase == Phase.FORWARD and (following is None or following.phase != Phase.BACKWARD)
    ]


def _kept(history: History, run: Run, leaking: set[int]) -> Ints:
    """The blocks of a run that a graph holds: what outlives its module, but for the results."""
    blocks = history.blocks
    mine = blocks.born_within(run.first, run.end)
    in_backward = np.append(history.phases.of_event, 0)[blocks.death[mine]] == Phase.BACKWARD
    held = history.owners.is_(MemoryCategory.ACTIVATION)[mine] & ~in_backward
    if held.sum() < MIN_KEPT_BLOCKS or held.mean() < GRAPH_RATIO or in_backward.any():
        return mine[:0]
    rows = mine[held]
    if run == history.phases.runs[-1]:
        gone = int((blocks.death[rows] < len(history.replay)).sum())
        if gone < MIN_KEPT_BLOCKS:
            return mine[:0]  # nothing shows yet that no backward pass will come
    if leaking & set(blocks.stack[rows].tolist()):
        return mine[:0]  # the graph itself stays: another finding
    result: Ints = rows[:-1]
    return result


def _place(history: History, rows: Ints) -> Frame | None:
    """The line of the program that called the model: the innermost that all of them share."""
    stacks = {s for i in rows.tolist() if (s := history.stack_of(i)) is not None}
    shared: list[Frame] | None = None
    for stack in stacks:
        frames = list(reversed(history.signs.user_frames(stack)))
        if shared is None:
            shared = frames
        else:
            same = [a == b for a, b in zip(shared, frames, strict=False)]
            shared = shared[: same.index(False)] if False in same else shared[: len(same)]
    return shared[-1] if shared else None
