"""The pictures of the memory view as SVG: curves, heap, flame graph. No script, no network."""

from collections.abc import Iterator
from html import escape

import numpy as np

from pinchpoint.analysis.memory.history import Heap, History, MemoryTimeline
from pinchpoint.analysis.memory.owners.owners import MemoryCategory
from pinchpoint.analysis.memory.owners.phases import Phase
from pinchpoint.report.plain import plain
from pinchpoint.report.quantity import size
from pinchpoint.report.words.memory import CATEGORY_WORDS

WIDTH = 1000  # units of the drawing, scaled to the page
CURVE_HEIGHT = 300  # the same
ROW_HEIGHT = 18  # a line of text of 12 units with room around it
MOST_RANGES = 48  # of the heap: the largest ones
MOST_BLOCKS = 4000  # shapes; more make a page slow to open
MOST_LABELS = 30  # of steps
# From the bottom of the stack up: what stays, then what comes and goes.
ORDER = (
    MemoryCategory.PARAMETER,
    MemoryCategory.BUFFER,
    MemoryCategory.OPTIMIZER_STATE,
    MemoryCategory.WORKSPACE,
    MemoryCategory.GRADIENT,
    MemoryCategory.UNKNOWN,
    MemoryCategory.INPUT,
    MemoryCategory.ACTIVATION,
    MemoryCategory.TEMPORARY,
)


def css_class(category: MemoryCategory) -> str:
    """The class that colours a category."""
    return "m-" + category.name.lower().replace("_", "-")


def curves(history: History, line: MemoryTimeline) -> str:
    """Requested bytes by category, stacked, over the events; reserved bytes as a line."""
    top = max(int(line.reserved.max(initial=0)), history.replay.peak("requested").bytes, 1)
    last = max(len(history.replay) - 1, 1)
    x = line.event * (WIDTH / last)
    parts = [_phases(history, last)]
    below = np.zeros(len(line.event), np.int64)
    for category in ORDER:
        values = line.by_category[category]
        if values.any():
            parts.append(_area(x, below, below + values, top, category))
        below = below + values
    parts.append(_reserved(x, line.reserved, top))
    parts += _guides(top)
    parts += _marks(history, last)
    return _svg("".join(parts), CURVE_HEIGHT + 34, "Memory over time by category")


def _area(
    x: np.ndarray, low: np.ndarray, high: np.ndarray, top: int, category: MemoryCategory
) -> str:
    upper = [f"{a:.1f},{_y(b, top):.1f}" for a, b in zip(x.tolist(), high.tolist(), strict=True)]
    lower = [f"{a:.1f},{_y(b, top):.1f}" for a, b in zip(x.tolist(), low.tolist(), strict=True)]
    points = " ".join((*upper, *reversed(lower)))
    most = size(int((high - low).max()))
    title = f"{CATEGORY_WORDS[category]}: up to {most}"
    shape = f'<polygon class="{css_class(category)}" points="{points}">'
    return f"{shape}<title>{title}</title></polygon>"


def _reserved(x: np.ndarray, reserved: np.ndarray, top: int) -> str:
    points = " ".join(
        f"{a:.1f},{_y(b, top):.1f}" for a, b in zip(x.tolist(), reserved.tolist(), strict=True)
    )
    return f'<polyline class="m-reserved" points="{points}"><title>reserved</title></polyline>'


def _y(value: int, top: int) -> float:
    return CURVE_HEIGHT - value * (CURVE_HEIGHT - 12) / top


def _guides(top: int) -> Iterator[str]:
    for part in (0.25, 0.5, 0.75, 1.0):
        y = _y(int(top * part), top)
        yield f'<line class="m-guide" x1="0" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="m-text" x="3" y="{y - 2:.1f}">{size(top * part)}</text>'


def _phases(history: History, last: int) -> str:
    """A strip below the curves: forward, backward, optimizer."""
    out = []
    for run in history.phases.runs:
        if run.phase in (Phase.UNKNOWN, Phase.OUTSIDE):
            continue
        left, width = run.first * WIDTH / last, (run.end - run.first) * WIDTH / last
        if width < 0.3:
            continue
        name = run.phase.name.lower()
        out.append(
            f'<rect class="m-phase-{name}" x="{left:.1f}" y="{CURVE_HEIGHT + 2}" '
            f'width="{width:.1f}" height="10"><title>{name}</title></rect>'
        )
    return "".join(out)


def _marks(history: History, last: int) -> Iterator[str]:
    for number, first in enumerate(history.steps.first):
        x = first * WIDTH / last
        yield f'<line class="m-step" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{CURVE_HEIGHT + 14}"/>'
        if len(history.steps) <= MOST_LABELS:
            yield _text(f"step {number}", x + 2, CURVE_HEIGHT + 26)
    peak = history.peak_event
    if peak >= 0:
        x = peak * WIDTH / last
        yield f'<line class="m-peak" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{CURVE_HEIGHT}"/>'
        yield _text(f"peak {size(history.replay.peak('requested').bytes)}", x + 4, 10, bold=True)


def _text(text: str, x: float, y: float, *, bold: bool = False) -> str:
    """A label to the right of x, or to the left of it near the right edge."""
    css = "m-text m-bold" if bold else "m-text"
    if x > WIDTH * 0.85:
        return f'<text class="{css}" text-anchor="end" x="{x - 8:.1f}" y="{y}">{text}</text>'
    return f'<text class="{css}" x="{x:.1f}" y="{y}">{text}</text>'


def heap_map(history: History, at: Heap) -> str:
    """The largest segments, one a row, as long as they are; live blocks by category."""
    order = sorted(range(len(at.ranges)), key=lambda i: at.ranges[i].start - at.ranges[i].end)
    shown = order[:MOST_RANGES]
    row_of = {r: row for row, r in enumerate(shown)}
    longest = max((at.ranges[r].end - at.ranges[r].start for r in shown), default=1) or 1
    scale = WIDTH / longest
    parts = []
    for r, row in row_of.items():
        held = at.ranges[r]
        kind = "expandable" if held.mapped else "small" if held.small else "large"
        pool = f", private pool ({plain(held.pool)})" if held.pool else ""
        title = f"{kind} segment of {size(held.end - held.start)}{pool}"
        parts.append(
            f'<rect class="m-segment" x="0" y="{row * ROW_HEIGHT}" '
            f'width="{(held.end - held.start) * scale:.1f}" height="{ROW_HEIGHT - 4}">'
            f"<title>{escape(title)}</title></rect>"
        )
    inside = np.flatnonzero(np.isin(at.block_range, shown))
    largest = inside[np.argsort(-history.replay.size[at.blocks[inside]], kind="stable")]
    for i in largest[:MOST_BLOCKS].tolist():
        parts.append(_block(history, at, i, row_of[int(at.block_range[i])], scale))
    left_out = len(at.ranges) - len(shown)
    note = f"<p class='soft'>{left_out} smaller segments are not drawn.</p>" if left_out else ""
    return _svg("".join(parts), max(len(shown), 1) * ROW_HEIGHT, "The heap at the peak") + note


def _block(history: History, at: Heap, i: int, row: int, scale: float) -> str:
    block = int(at.blocks[i])
    start = int(history.blocks.address[block]) - at.ranges[int(at.block_range[i])].start
    length = int(history.replay.size[block])
    category = MemoryCategory(int(history.owners.category[block]))
    stack = history.stack_of(block)
    place = history.signs.location(stack) if stack is not None else None
    where = f" at {place.file.rsplit('/', 1)[-1]}:{place.line}" if place else ""
    title = escape(plain(f"{CATEGORY_WORDS[category]}, {size(length)}{where}"))
    return (
        f'<rect class="{css_class(category)}" x="{start * scale:.2f}" y="{row * ROW_HEIGHT}" '
        f'width="{max(length * scale, 0.3):.2f}" height="{ROW_HEIGHT - 4}">'
        f"<title>{title}</title></rect>"
    )


def _svg(content: str, height: int, label: str) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">'
    return f"{head}{content}</svg>"
