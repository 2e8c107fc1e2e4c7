"""Flame graphs as SVG without a script: callers above, what they call below, width is the amount.

The frames stand beside the picture as data, for the script that zooms, searches and turns them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from pinchpoint.analysis.host.frames import Owner, frame_of
from pinchpoint.analysis.memory.history import Node
from pinchpoint.analysis.tables.call_tree import NO_NODE, CallTree
from pinchpoint.json_text import encoded
from pinchpoint.report.plain import plain
from pinchpoint.report.quantity import percent, quantity
from pinchpoint.trace import Trace
from pinchpoint.trace.arrays import Ints

LEAST_SHARE = 0.002  # of the whole; narrower frames cannot be seen before one zooms
MOST_DRAWN = 1200  # the widest; a page with more is slow to open
LEAST_SHARE_KEPT = 0.0001  # of the whole, for zooming
MOST_KEPT = 6000  # about 100 kB
MOST_LEVELS = 48  # deeper calls are narrow
_NAME_LIMIT = 300  # characters
_ROW = 18  # a line of text of 12 units with room around it


@dataclass(frozen=True)
class Frame:
    """``parent`` is the position of an earlier frame, or NO_NODE; ``foreign``: not the user's."""

    name: str
    parent: int
    depth: int
    amount: int
    times: int  # calls or blocks; 0: not counted
    foreign: bool = False


def flame(frames: Sequence[Frame], what: str, unit: str, counted: str) -> Markup | None:
    """The graph of amounts in ns or bytes; ``counted`` names what ``times`` are. None: all zero."""
    whole = sum(frame.amount for frame in frames if frame.parent == NO_NODE)
    if whole <= 0:
        return None
    kept = _widest(frames, whole, LEAST_SHARE_KEPT, MOST_KEPT)
    drawn = _widest(kept, whole, LEAST_SHARE, MOST_DRAWN)
    left = _lefts(drawn)
    boxes = [_box(drawn, at, left[at], whole, unit, counted) for at in range(len(drawn))]
    height = (max(frame.depth for frame in drawn) + 1) * _ROW
    return Markup(
        '<div class="flames"><svg class="flame" height="{}" role="img" aria-label="{}">{}</svg>'
        '<pre class="frames" hidden="">{}</pre></div>'
    ).format(
        height,
        f"{what}, {quantity(whole, unit)} in all",
        Markup("").join(boxes),
        _data(kept, what, unit, counted),
    )


def of_calls(trace: Trace, tree: CallTree, total: Ints) -> list[Frame]:
    """The call tree with one of its inclusive columns, without what is nowhere near visible."""
    whole = int(total[tree.parent == NO_NODE].sum())
    rows = np.flatnonzero((total > LEAST_SHARE_KEPT * whole) & (tree.depth < MOST_LEVELS))
    place = np.full(len(tree), NO_NODE, np.int64)
    place[rows] = np.arange(len(rows))
    labels = tree.labels(trace)
    return [
        Frame(
            plain(labels[row], _NAME_LIMIT),
            int(place[tree.parent[row]]) if tree.parent[row] != NO_NODE else NO_NODE,
            int(tree.depth[row]),
            int(total[row]),
            int(tree.calls[row]),
            _of_library(labels[row]),
        )
        for row in rows.tolist()
    ]


def _of_library(name: str) -> bool:
    frame = frame_of(name)
    return name.startswith("<built-in") or (frame is not None and frame.owner != Owner.USER)


def of_memory(top: Node) -> list[Frame]:
    """The tree of stacks with the bytes below each, parents first."""
    found, waiting = [], [(top, NO_NODE, 0)]
    for node, parent, depth in waiting:  # grows while it is walked
        name = plain(node.name, _NAME_LIMIT)
        found.append(Frame(name, parent, depth, node.bytes, node.blocks, node.foreign))
        if depth + 1 < MOST_LEVELS:
            waiting += [(child, len(found) - 1, depth + 1) for child in node.children.values()]
    return found


def _widest(frames: Sequence[Frame], whole: int, share: float, most: int) -> list[Frame]:
    """The widest frames that are at least a share of the whole, in the order in which they were.

    A parent is as wide as its children and stands before them, so that it stays when they do.
    """
    amounts = np.array([frame.amount for frame in frames], np.int64)
    rows = np.flatnonzero(amounts >= share * whole)
    rows = np.sort(rows[np.argsort(-amounts[rows], kind="stable")][:most])
    place = {row: position for position, row in enumerate(rows.tolist())}
    return [
        Frame(f.name, place.get(f.parent, NO_NODE), f.depth, f.amount, f.times, f.foreign)
        for f in (frames[row] for row in place)
        if f.parent == NO_NODE or f.parent in place
    ]


def _lefts(frames: Sequence[Frame]) -> list[int]:
    """Where each box begins: after its siblings that are wider. Parents come first."""
    left, used = [0] * len(frames), {NO_NODE: 0}
    for at in sorted(range(len(frames)), key=lambda i: (frames[i].depth, -frames[i].amount)):
        above = frames[at].parent
        left[at] = used.setdefault(above, left[above])
        used[above] = left[at] + frames[at].amount
    return left


def _box(
    frames: Sequence[Frame], at: int, left: int, whole: int, unit: str, counted: str
) -> Markup:
    frame = frames[at]
    hover = f"{frame.name}: {quantity(frame.amount, unit)}, {percent(frame.amount / whole)} %"
    if frame.times:
        hover += f", {frame.times:,} {counted}"
    return Markup(
        '<svg x="{:.3f}%" y="{}" width="{:.3f}%" height="{}"><title>{}</title>'
        '<rect class="f{}" width="100%" height="17"/><text x="3" y="13">{}</text></svg>'
    ).format(
        100 * left / whole,
        frame.depth * _ROW,
        100 * frame.amount / whole,
        _ROW,
        hover,
        frame.depth % 4,
        frame.name[:100] if frame.amount > 0.02 * whole else "",
    )


def _data(frames: Sequence[Frame], what: str, unit: str, counted: str) -> Markup:
    """As text between tags, where quotes may stay as they are."""
    names = {name: i for i, name in enumerate(dict.fromkeys(frame.name for frame in frames))}
    foreign = {names[frame.name] for frame in frames if frame.foreign}
    text = encoded(
        {
            "what": what,
            "unit": unit,
            "counted": counted,
            "names": list(names),
            "foreign": sorted(foreign),
            "parent": [frame.parent for frame in frames],
            "name": [names[frame.name] for frame in frames],
            "amount": [frame.amount for frame in frames],
            "times": [frame.times for frame in frames],
        }
    ).decode()
    return Markup(str(escape(text)).replace("&#34;", '"'))
