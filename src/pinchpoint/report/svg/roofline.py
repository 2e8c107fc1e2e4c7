"""The roofline as a picture: roofs, and each point as a disc whose area is its time. No script."""

from collections.abc import Iterator
from html import escape
from math import ceil, floor, log10, sqrt

from pinchpoint.frozen import dataclass
from pinchpoint.report.documents.roofline import PointInfo, RoofInfo, RooflineDocument
from pinchpoint.report.plain import plain
from pinchpoint.report.quantity import duration, number, percent, rate

WIDTH, HEIGHT = 900, 520  # units of the drawing, scaled to the page
_LEFT, _RIGHT, _TOP, _BOTTOM = 104, 24, 40, 56  # units that the labels of the axes need
_MOST_POINTS = 60  # more cover each other
_LABEL_UNIT, _LABEL_HEIGHT = 6.2, 13  # pixels a character and a line of 11 px
_LARGEST, _SMALLEST = 26.0, 3.0  # radii
_LEAST_INTENSITY = 0.01  # a point without FLOPs is drawn at the left edge
_COLOURS = {"memory": "#4e79a7", "compute": "#e15759", None: "#9c9c9c"}


@dataclass(frozen=True)
class _Axes:
    """Decades of both axes."""

    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, intensity: float) -> float:
        share = (log10(intensity) - self.x0) / (self.x1 - self.x0)
        return _LEFT + min(max(share, 0.0), 1.0) * (WIDTH - _LEFT - _RIGHT)

    def y(self, flop_per_s: float) -> float:
        share = (log10(flop_per_s) - self.y0) / (self.y1 - self.y0)
        return HEIGHT - _BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - _TOP - _BOTTOM)


def roofline_svg(document: RooflineDocument) -> str:
    """A whole ``<svg>`` element; without points or roofs it says so."""
    shown = [p for p in document.points if p.intensity is not None and p.flop_per_s is not None]
    shown = shown[:_MOST_POINTS]
    memory = next((r for r in document.roofs if r.dtype is None), None)
    types = {p.dtype for p in shown}
    roofs = [r for r in document.roofs if r.dtype is not None and r.dtype in types]
    title = plain(f"Roofline of {document.device or 'an unknown device'}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="12" role="img" '
        f'aria-label="{escape(title)}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="22" font-size="15">{escape(title)}</text>',
    ]
    if not shown or memory is None or not roofs:
        parts.append(f'<text x="{_LEFT}" y="60">nothing that can be placed on it</text>')
        return "\n".join([*parts, "</svg>"])
    axes = _axes(shown, memory, roofs)
    parts += _grid(axes)
    parts += _roof_lines(axes, memory, roofs)
    parts += _discs(axes, shown)
    return "\n".join([*parts, "</svg>"])


def _axes(shown: list[PointInfo], memory: RoofInfo, roofs: list[RoofInfo]) -> _Axes:
    across = [max(p.intensity or 0.0, _LEAST_INTENSITY) for p in shown]
    across += [r.per_s / memory.per_s for r in roofs]
    top = max(r.per_s for r in roofs)
    up = [p.flop_per_s for p in shown if p.flop_per_s] + [top]
    low = max(min(up), top * 1e-7)
    x0, x1 = floor(log10(min(across))), ceil(log10(max(across)) + 0.3)
    return _Axes(x0, max(x1, x0 + 1), floor(log10(low)), ceil(log10(top) + 0.05))


def _grid(axes: _Axes) -> Iterator[str]:
    bottom = HEIGHT - _BOTTOM
    for decade in range(int(axes.x0), int(axes.x1) + 1):
        x = axes.x(10.0**decade)
        yield (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}" stroke="#eee"/>'
            f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle" fill="#555">'
            f"{10.0**decade:g}</text>"
        )
    for decade in range(int(axes.y0), int(axes.y1) + 1):
        y = axes.y(10.0**decade)
        yield (
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#eee"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#555">'
            f"{_decade(decade)}</text>"
        )
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    yield (
        f'<text x="{middle:.0f}" y="{HEIGHT - 12}" text-anchor="middle" fill="#333">'
        "FLOP per byte of device memory</text>"
    )


def _roof_lines(axes: _Axes, memory: RoofInfo, roofs: list[RoofInfo]) -> Iterator[str]:
    left, right = 10.0**axes.x0, 10.0**axes.x1
    ridge = max(r.per_s / memory.per_s for r in roofs)
    start = max(left, 10.0**axes.y0 / memory.per_s)
    yield (
        f'<line x1="{axes.x(start):.1f}" y1="{axes.y(start * memory.per_s):.1f}" '
        f'x2="{axes.x(ridge):.1f}" y2="{axes.y(ridge * memory.per_s):.1f}" stroke="#333" '
        'stroke-width="2"/>'
    )
    yield (
        f'<text x="{axes.x(start) + 24:.1f}" y="{axes.y(start * memory.per_s) - 2:.1f}" '
        f'fill="#333">{rate(memory.per_s, "B/s")}{_mark(memory)}</text>'
    )
    highest = max(roofs, key=lambda roof: roof.per_s)
    for roof in roofs:
        x, y = axes.x(roof.per_s / memory.per_s), axes.y(roof.per_s)
        beside = -6 if roof is highest else 15  # below the line, where the memory roof is not
        words = f"{roof.dtype} {rate(roof.per_s, 'FLOP/s')}{_mark(roof)}"
        yield (
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{axes.x(right):.1f}" y2="{y:.1f}" '
            'stroke="#333" stroke-width="2"/>'
            f'<text x="{x + 4:.1f}" y="{y + beside:.1f}" fill="#333">{escape(plain(words))}</text>'
        )


def _mark(roof: RoofInfo) -> str:
    return " (measured)" if roof.measured else ""


def _discs(axes: _Axes, shown: list[PointInfo]) -> Iterator[str]:
    longest = max(p.time_ns for p in shown) or 1
    places = []
    for point in shown:
        x = axes.x(max(point.intensity or 0.0, _LEAST_INTENSITY))
        y = axes.y(max(point.flop_per_s or 0.0, 10.0**axes.y0))
        places.append((point, x, y, max(_LARGEST * sqrt(point.time_ns / longest), _SMALLEST)))
    for point, x, y, radius in reversed(places):  # the longest on top
        colour = _COLOURS.get(point.bound, _COLOURS[None])
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour}" '
            f'fill-opacity="0.55" stroke="{colour}"><title>{escape(_tip(point))}</title></circle>'
        )
    taken: list[tuple[float, float, float]] = []  # from x, to x, at y
    for point, x, y, radius in places:
        yield from _label(plain(point.name.removeprefix("aten::"), 28), x, y, radius, taken)


def _label(
    words: str, x: float, y: float, radius: float, taken: list[tuple[float, float, float]]
) -> Iterator[str]:
    """The name beside its disc, where no name of a longer point is."""
    width = len(words) * _LABEL_UNIT
    right = x + radius + 3 + width < WIDTH - 4
    left = x + radius + 3 if right else x - radius - 3 - width
    if any(left < b and left + width > a and abs(y - at) < _LABEL_HEIGHT for a, b, at in taken):
        return
    taken.append((left, left + width, y))
    yield (
        f'<text x="{left:.1f}" y="{y + 4:.1f}" fill="#222" font-size="11">{escape(words)}</text>'
    )


def _decade(decade: int) -> str:
    """``100 GFLOP/s`` without digits that say nothing."""
    return rate(10.0**decade, "FLOP/s").replace(".00", "").replace(".0", "")


def _tip(point: PointInfo) -> str:
    share = "" if point.roof_ratio is None else f", {percent(point.roof_ratio)} % of its roof"
    return plain(
        f"{point.name} {point.shapes or ''}: {duration(point.time_ns)}, "
        f"{rate(point.flop_per_s, 'FLOP/s')}, {number(point.intensity or 0.0)} FLOP/byte{share}"
    )
