"""The curves and the tree of stacks, thinned to what a picture can show."""

from dataclasses import dataclass, field

import numpy as np

from pinchpoint.analysis.memory.history import History
from pinchpoint.analysis.memory.owners import Category
from pinchpoint.analysis.memory.stacks import is_python
from pinchpoint.trace.arrays import Ints

POINTS = 900  # of a curve: more than a screen has columns to tell apart


@dataclass(frozen=True, eq=False)
class Timeline:
    """Requested bytes of each category, and reserved bytes, after chosen events: of each stretch of
    events the one where most is requested, so that every peak is kept."""

    event: Ints
    by_category: dict[Category, Ints]
    reserved: Ints
    phase: Ints


def timeline(history: History, points: int = POINTS) -> Timeline:
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
    for category in Category:
        rows = np.flatnonzero(history.owners.is_(category))
        change = np.zeros(count + 2, np.int64)
        np.add.at(change, history.blocks.birth[rows] + 1, history.blocks.requested[rows])
        np.add.at(change, history.blocks.death[rows] + 1, -history.blocks.requested[rows])
        by_category[category] = np.cumsum(change)[1:][chosen]
    return Timeline(
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
        for name in _path(history, one):
            at = at.children.setdefault(name, Node(name))
            at.bytes += total
            at.blocks += count
    return top


def _path(history: History, stack: int) -> list[str]:
    frames = [f for f in history.signs.stacks[stack] if is_python(f)] if stack >= 0 else []
    if not frames:
        node = history.signs.operation(stack) if stack >= 0 else None
        return ["no Python frame (autograd, or before recording)", *([node] if node else [])]
    calls = ("_call_impl", "_wrapped_call_impl")
    return [
        f"{f.file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{f.line} {f.function}"
        for f in reversed(frames)
        if f.function not in calls
    ]
