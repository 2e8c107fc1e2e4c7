"""The pictures of what bounds a step as SVG: ladder of pieces, critical path, queue over time."""

from collections.abc import Callable, Sequence
from html import escape

from pinchpoint.report.documents.causal import PieceInfo, StretchInfo
from pinchpoint.report.documents.report import QueueInfo
from pinchpoint.report.quantity import duration

# Lengths along are shares of the page's width, so that a narrow page shows all of a picture.
# Pixels:
RUNG, BAR, LANE, FOOT = 38, 12, 30, 20
_LONGEST = 40  # characters of a label: beside its figure they fit a telephone
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
    whole = max(base_ns, 1)
    parts = []
    for row, piece in enumerate(pieces):
        y, left = row * RUNG, piece.step_if_free_ns / whole
        said = f"{piece.name}: {duration(base_ns)}, without it {duration(piece.step_if_free_ns)}"
        if piece.step_at_limit_ns < base_ns:
            said += f", at its limit {duration(piece.step_at_limit_ns)}"
        parts += [
            _text(0, y + 14, _short(piece.name), "start"),
            _text(1, y + 14, f"→ {duration(piece.step_if_free_ns)}", "end"),
            f"<g><title>{escape(said)}</title>",
            _bar("device", 0, left, y + 19, BAR),
            _bar('good-fill" opacity="0.3', left, max(1 - left, 0), y + 19, BAR),
            _mark(piece.step_at_limit_ns / whole, y) if piece.step_at_limit_ns < base_ns else "",
            "</g>",
        ]
    title = f"What the step of {duration(base_ns)} would be without each piece"
    return _svg("".join(parts), len(pieces) * RUNG, title)


def _mark(at: float, y: float) -> str:
    return (
        f'<rect class="good-fill" x="{_share(at)}" y="{y + 16}" width="2" height="{BAR + 6}"'
        ' transform="translate(-2 0)"/>'
    )


def path_svg(stretches: Sequence[StretchInfo]) -> str:
    """The critical path of one step from left to right; what each stretch is, in its title."""
    whole = max((s.start_ns + s.duration_ns for s in stretches), default=0) or 1
    parts = []
    for stretch in stretches:
        colour, words = PATH_KINDS[stretch.kind]
        what = f"{words}: {stretch.name}" if stretch.name else words
        wide = max(stretch.duration_ns / whole, _LEAST_SHARE)
        said = f"{what}, {duration(stretch.duration_ns)}"
        parts.append(_bar(colour, stretch.start_ns / whole, wide, 0, LANE, said))
    for part in range(5):
        anchor = "start" if part == 0 else "end" if part == 4 else "middle"
        parts.append(_text(part / 4, LANE + 15, duration(round(whole * part / 4)), anchor))
    return _svg("".join(parts), LANE + FOOT, "The critical path of a step")


_LEAST_SHARE = 0.0005  # half a pixel of a wide page
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
        y = row * (_CURVE + RUNG) + FOOT
        wide = 1 / max(len(values), 1)
        parts.append(_text(0, y - 6, f"{name}, up to {said(top)}", "start"))
        for at, value in enumerate(values):
            if value is None:
                continue
            when = duration(at * queue.part_ns)
            high = max(value / top * _CURVE, 0.7)
            words = f"{name} {said(value)}, {when} after the first step began"
            parts.append(_bar("device", at * wide, wide, y + _CURVE - high, high, words))
    height = len(rows) * (_CURVE + RUNG)
    return _svg("".join(parts), height, "Queue depth and launch latency over time")


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _share(of_width: float) -> str:
    return f"{100 * of_width:.2f}%"


def _bar(colour: str, x: float, wide: float, y: float, high: float, title: str = "") -> str:
    """A rectangle; ``x`` and ``wide`` are shares of the width."""
    place = f'x="{_share(x)}" y="{y:.1f}" width="{_share(wide)}" height="{high:.1f}"'
    told = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect class="{colour}" {place}>{told}</rect>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    """A line of text at a share of the width."""
    place = f'x="{_share(x)}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="13" fill="currentColor">{escape(text)}</text>'


def _svg(inside: str, height: float, title: str) -> str:
    return (
        f'<svg style="width:100%;min-width:0;height:{height:.0f}px" role="img"'
        f' aria-label="{escape(title)}"><title>{escape(title)}</title>{inside}</svg>'
    )
