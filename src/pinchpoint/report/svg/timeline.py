"""Time as SVG, without a script: how busy each lane is over time, and who called what."""

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from pinchpoint.analysis.tables.call_tree import NO_NODE, CallTree
from pinchpoint.report.plain import plain
from pinchpoint.report.quantity import duration, percent
from pinchpoint.report.timeline.lanes import Timeline
from pinchpoint.trace import Trace
from pinchpoint.trace.intervals import covered_before, flatten

LANES = 12  # the others are only in the interactive timeline
COLUMNS = 240  # over the width: a few pixels each
_ROW, _HEIGHT, _LABEL = 30, 22, 15  # heights; width of labels in percent


def timeline_svg(drawn: Timeline) -> Markup:
    """One row a lane; the height of a column is the share of its time that is covered."""
    rows = [_lane(drawn, lane, lane * _ROW) for lane in range(min(len(drawn.lanes), LANES))]
    height = len(rows) * _ROW
    label = "How busy each lane is over the recording"
    inside = Markup("").join(rows)
    return Markup('<svg height="{}" role="img" aria-label="{}">{}</svg>').format(
        height, label, inside
    )


def _lane(drawn: Timeline, lane: int, top: int) -> Markup:
    slices = drawn.slices
    mine = (slices.lane == lane) & (slices.depth == 0)
    busy = flatten(slices.start_ns[mine], slices.start_ns[mine] + slices.duration_ns[mine])
    edges = np.linspace(drawn.start_ns, drawn.end_ns, COLUMNS + 1).astype(np.int64)
    share = np.diff(covered_before(busy, edges)) / np.maximum(np.diff(edges), 1)
    path = "".join(
        f"M{i} {_HEIGHT}v-{share[i] * _HEIGHT:.1f}h1V{_HEIGHT}z" for i in np.flatnonzero(share)
    )
    return Markup(
        '<svg width="{}%" y="{}" height="{}"><title>{}</title><text x="0" y="16">{}</text></svg>'
        '<svg x="{}%" y="{}" width="{}%" height="{}" '
        'viewBox="0 0 {} {}" preserveAspectRatio="none"><path class="{}" d="{}"/></svg>'
    ).format(
        _LABEL - 1,
        top,
        _HEIGHT,
        plain(drawn.lanes[lane].label),
        plain(drawn.lanes[lane].label, 22),
        _LABEL,
        top,
        100 - _LABEL,
        _HEIGHT,
        COLUMNS,
        _HEIGHT,
        drawn.lanes[lane].kind,
        path,
    )


# ------------------------------------------------------------------------------------------------
# Time by stack as SVG: callers above, what they call below, width is time.


LEAST_SHARE = 0.002  # of the whole; narrower calls cannot be seen
MOST_NODES = 1200  # the widest; a page with more is slow to open
MOST_LEVELS = 48  # deeper calls are narrow
_FLAME_ROW = 18  # a line of text of 12 units with room around it


def flame_svg(trace: Trace, tree: CallTree, total: NDArray[np.int64], what: str) -> Markup | None:
    """The graph of one inclusive column; None where all of it is zero."""
    whole = int(total[tree.parent == NO_NODE].sum())
    if whole <= 0:
        return None
    shown = (total >= LEAST_SHARE * whole) & (tree.depth < MOST_LEVELS)
    nodes = np.flatnonzero(shown)
    nodes = np.sort(nodes[np.argsort(-total[nodes], kind="stable")][:MOST_NODES])
    left = _lefts(tree, total, nodes)
    labels = [plain(label, 100) for label in tree.labels(trace)]
    boxes = [_box(labels, tree, total, whole, node, left[node]) for node in nodes.tolist()]
    height = (int(tree.depth[nodes].max()) + 1) * _FLAME_ROW
    return Markup('<svg class="flame" height="{}" role="img" aria-label="{}">{}</svg>').format(
        height, f"{what}, {duration(whole)} in all", Markup("").join(boxes)
    )


def _lefts(tree: CallTree, total: NDArray[np.int64], nodes: NDArray[np.int64]) -> dict[int, int]:
    """Where each box begins: after its siblings that are wider. Parents come first."""
    left: dict[int, int] = {}
    used: dict[int, int] = {}
    for node in nodes[np.lexsort((-total[nodes], tree.depth[nodes]))].tolist():
        above = int(tree.parent[node])
        left[node] = used.get(above, left.get(above, 0))
        used[above] = left[node] + int(total[node])
    return left


def _box(
    labels: list[str], tree: CallTree, total: NDArray[np.int64], whole: int, node: int, left: int
) -> Markup:
    name = labels[node]
    hover = f"{name}: {duration(int(total[node]))}, {percent(total[node] / whole)} %"
    if tree.calls[node]:
        hover += f", {tree.calls[node]:,} calls"
    return Markup(
        '<svg x="{:.3f}%" y="{}" width="{:.3f}%" height="{}"><title>{}</title>'
        '<rect class="f{}" width="100%" height="17"/><text x="3" y="13">{}</text></svg>'
    ).format(
        100 * left / whole,
        int(tree.depth[node]) * _FLAME_ROW,
        100 * total[node] / whole,
        _FLAME_ROW,
        hover,
        int(tree.depth[node]) % 4,
        name if total[node] > 0.02 * whole else "",
    )
