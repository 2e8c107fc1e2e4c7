"""How busy each lane of the timeline is over time, as SVG without a script."""

import numpy as np
from markupsafe import Markup

from pinchpoint.report.plain import plain
from pinchpoint.report.timeline.lanes import Timeline
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
