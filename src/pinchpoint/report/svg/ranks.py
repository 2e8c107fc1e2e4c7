"""The pictures of a job as SVG: heat map of ranks and steps, timeline of aligned ranks."""

from html import escape

from pinchpoint.report.documents.ranks import HeatMap, TimelineItem
from pinchpoint.report.quantity import duration

WIDTH = 1000  # units of the drawing, scaled to the page
WIDEST_CELL = 48  # a few steps are not drawn as bands
LEAST_SCALE = 0.86  # text of 11 units is read down to 9.5 pixels
LABEL = 110  # a dozen characters
MOST_CELL_HEIGHT, LEAST_CELL_HEIGHT = 22, 4  # a line of text; the least that is seen
MOST_ROW_LABELS, MOST_COLUMN_LABELS = 24, 16  # as many as do not touch
LANE_HEIGHT, LANE_GAP = 18, 6  # a line of text of 12 units with room around it
FOOT = 22  # one line of labels
HEAD = 8  # the label of a low first row is higher than the row


def heat_svg(heat: HeatMap) -> str:
    """Rows are ranks or blocks of ranks, columns steps; darker is later."""
    count, across = len(heat.rows), len(heat.columns)
    height = max(min(MOST_CELL_HEIGHT, 640 // max(count, 1)), LEAST_CELL_HEIGHT)
    width = min((WIDTH - LABEL) / max(across, 1), WIDEST_CELL)
    top = max((v or 0 for row in heat.excess_ns for v in row), default=0) or 1
    parts = []
    every = -(-count // MOST_ROW_LABELS)
    for y, (block, row) in enumerate(zip(heat.rows, heat.excess_ns, strict=True)):
        name = _block("rank", block)
        if y % every == 0:
            parts.append(_text(LABEL - 6, HEAD + (y + 0.5) * height + 4, _span(block), "end"))
        for x, value in enumerate(row):
            parts.append(
                _cell(
                    LABEL + x * width,
                    HEAD + y * height,
                    width,
                    height,
                    None if value is None else max(value, 0) / top,
                    f"{name}, {_block('step', heat.columns[x])}: "
                    + ("not completed" if value is None else f"{duration(value)} late"),
                )
            )
    every = -(-across // MOST_COLUMN_LABELS)
    for x in range(0, across, every):
        middle = LABEL + (x + 0.5) * width
        below = HEAD + count * height + 15
        parts.append(_text(middle, below, _span(heat.columns[x]), "middle"))
    title = f"Lateness of ranks by step; darkest {duration(top)}"
    return _svg("".join(parts), HEAD + count * height + FOOT, title, LABEL + across * width)


def _cell(x: float, y: float, width: float, height: float, share: float | None, title: str) -> str:
    style = ' class="r-none"' if share is None else f' class="r-late" fill-opacity="{share:.3f}"'
    box = f'x="{x:.1f}" y="{y:.1f}" width="{max(width - 0.5, 0.5):.1f}" height="{height - 0.5:.1f}"'
    return f"<rect{style} {box}><title>{escape(title)}</title></rect>"


def timeline_svg(timeline: TimelineItem) -> str:
    """One lane a rank; its own work is the ground, communication lies on it."""
    longest = max((lane.end_ns for lane in timeline.lanes), default=1) or 1
    scale = (WIDTH - LABEL) / longest
    parts = []
    for row, lane in enumerate(timeline.lanes):
        y = row * (LANE_HEIGHT + LANE_GAP)
        parts.append(_text(LABEL - 6, y + LANE_HEIGHT - 5, f"rank {lane.rank}", "end"))
        parts.append(_bar("own", lane.start_ns, lane.end_ns, y, scale, lane.rank))
        for piece in lane.pieces:
            parts.append(_bar(piece.what, piece.start_ns, piece.end_ns, y, scale, lane.rank))
    height = len(timeline.lanes) * (LANE_HEIGHT + LANE_GAP)
    for part in range(5):
        at = longest * part / 4
        anchor = "start" if part == 0 else "end" if part == 4 else "middle"
        parts.append(_text(LABEL + at * scale, height + 13, duration(at), anchor))
    return _svg("".join(parts), height + FOOT, f"Step {timeline.step} on the common clock")


_WORDS = {
    "own": "own work",
    "waiting": "waiting for the last rank",
    "transfer": "transfer that nothing hides",
    "hidden": "communication beside own work",
}


def _bar(what: str, start: int, end: int, y: float, scale: float, rank: int) -> str:
    inset = 5 if what == "hidden" else 0
    title = f"rank {rank}: {_WORDS[what]}, {duration(end - start)}"
    return (
        f'<rect class="r-{what}" x="{LABEL + start * scale:.2f}" y="{y + inset:.1f}"'
        f' width="{max((end - start) * scale, 0.4):.2f}" height="{LANE_HEIGHT - 2 * inset}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _block(what: str, block: tuple[int, int]) -> str:
    return f"{what} {block[0]}" if block[0] == block[1] else f"{what}s {block[0]} to {block[1]}"


def _span(block: tuple[int, int]) -> str:
    return str(block[0]) if block[0] == block[1] else f"{block[0]}–{block[1]}"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="r-text" {place}>{escape(text)}</text>'


def _svg(inside: str, height: float, title: str, width: float = WIDTH) -> str:
    """A narrow picture is not drawn wider, and a wide one is not squeezed: its text is to read."""
    least = LEAST_SCALE * width
    style = f"min-width: {least:.0f}px" + ("" if width >= WIDTH else f"; max-width: {width:.0f}px")
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" style="{style}" role="img"'
        f' aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{inside}</svg>"
    )


__all__ = ["heat_svg", "timeline_svg"]
