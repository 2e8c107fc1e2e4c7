"""The pictures of what bounds a step as SVG: ladder of pieces, critical path, queue over time."""

from collections.abc import Callable, Sequence
from html import escape

from pinchpoint.report.documents.causal import PieceInfo, StretchInfo
from pinchpoint.report.documents.report import QueueInfo
from pinchpoint.report.quantity import duration

WIDTH, LABEL, FIGURES = 1000, 330, 190  # units of the drawing, scaled to the page
RUNG, LANE, FOOT = 22, 30, 20  # lines of text of 12 units
_LONGEST = 46  # characters of a label: 330 units of 12-unit text
# What a stretch of the path is: its colour on the page, and its words.
PATH_KINDS = {
    "device": ("device", "the device works"),
    "start": ("exposed", "work on its way to the device"),
    "call": ("idle", "the host is in a call of the driver"),
    "host": ("host", "the host does something else"),
    "batch": ("soft-fill", "waiting for a batch of a loader"),
}


def ladder_svg(base_ns: int, pieces: Sequence[PieceInfo]) -> str:
    """One bar a piece: what is left of the step without it, and what of it a limit alone wins."""
    scale = (WIDTH - LABEL - FIGURES) / max(base_ns, 1)
    parts = []
    for row, piece in enumerate(pieces):
        y = row * RUNG
        left, limit = piece.step_if_free_ns * scale, piece.step_at_limit_ns * scale
        end = base_ns * scale
        said = f"{piece.name}: {duration(base_ns)}, without it {duration(piece.step_if_free_ns)}"
        if piece.step_at_limit_ns < base_ns:
            said += f", at its limit {duration(piece.step_at_limit_ns)}"
        parts += [
            _text(LABEL - 8, y + 15, _short(piece.name), "end"),
            f"<g><title>{escape(said)}</title>",
            f'<rect class="device" x="{LABEL}" y="{y + 4}" width="{left:.1f}" height="14"/>',
            f'<rect class="good-fill" opacity="0.3" x="{LABEL + left:.1f}" y="{y + 4}"'
            f' width="{max(end - left, 0):.1f}" height="14"/>',
            f'<rect class="good-fill" x="{LABEL + limit - 1:.1f}" y="{y + 1}" width="2"'
            ' height="20"/></g>',
            _text(LABEL + end + 8, y + 15, f"→ {duration(piece.step_if_free_ns)}", "start"),
        ]
    title = f"What the step of {duration(base_ns)} would be without each piece"
    return _svg("".join(parts), len(pieces) * RUNG + 4, title)


def path_svg(stretches: Sequence[StretchInfo]) -> str:
    """The critical path of one step from left to right; what each stretch is, in its title."""
    whole = max((s.start_ns + s.duration_ns for s in stretches), default=0) or 1
    scale = WIDTH / whole
    parts = []
    for stretch in stretches:
        colour, words = PATH_KINDS[stretch.kind]
        what = f"{words}: {stretch.name}" if stretch.name else words
        parts.append(
            f'<rect class="{colour}" x="{stretch.start_ns * scale:.1f}" y="0"'
            f' width="{max(stretch.duration_ns * scale, 0.5):.1f}" height="{LANE}">'
            f"<title>{escape(what)}, {duration(stretch.duration_ns)}</title></rect>"
        )
    for part in range(5):
        anchor = "start" if part == 0 else "end" if part == 4 else "middle"
        parts.append(_text(WIDTH * part / 4, LANE + 15, duration(round(whole * part / 4)), anchor))
    return _svg("".join(parts), LANE + FOOT, "The critical path of a step")


_CURVE = 70  # height of a curve


def queue_svg(queue: QueueInfo) -> str:
    """Queue depth and launch latency over time, one below the other."""
    rows: tuple[tuple[str, Sequence[float | None], Callable[[float], str]], ...] = (
        ("queue depth", queue.depth, lambda value: f"{value:,.0f}"),
        ("launch latency", queue.latency_ns, lambda value: duration(round(value))),
    )
    parts = []
    for row, (name, values, said) in enumerate(rows):
        top = max((value for value in values if value is not None), default=0) or 1
        y, left = row * (_CURVE + 12), 170
        width = (WIDTH - left) / max(len(values), 1)
        parts += [
            _text(left - 8, y + _CURVE / 2, name, "end"),
            _text(left - 8, y + _CURVE / 2 + 15, f"up to {said(top)}", "end"),
        ]
        for at, value in enumerate(values):
            if value is None:
                continue
            when = duration(at * queue.part_ns)
            high = max(value / top * _CURVE, 0.7)
            parts.append(
                f'<rect class="device" x="{left + at * width:.1f}" y="{y + _CURVE - high:.1f}"'
                f' width="{width:.2f}" height="{high:.1f}">'
                f"<title>{escape(f'{name} {said(value)}, {when} after the first step began')}"
                "</title></rect>"
            )
    return _svg("".join(parts), 2 * (_CURVE + 12), "Queue depth and launch latency over time")


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _text(x: float, y: float, text: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="12" fill="currentColor">{escape(text)}</text>'


def _svg(inside: str, height: float, title: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" style="min-width: 700px" role="img"'
        f' aria-label="{escape(title)}"><title>{escape(title)}</title>{inside}</svg>'
    )
