"""Time over size as SVG: both axes logarithmic, one line a place, the crossing as a band."""

from collections.abc import Callable
from html import escape
from math import ceil, floor, log10

from pinchpoint.bench.crossover.crossing import Crossing, Point, Time
from pinchpoint.bench.crossover.measure import Curve
from pinchpoint.frozen import dataclass
from pinchpoint.report.quantity import duration

WIDTH, HEIGHT = 540, 300  # pixels
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 34, 28, 40  # pixels that the labels of the axes need
_SERIES: tuple[tuple[str, str, str, Callable[[Point], Time | None]], ...] = (
    ("cpu", "CPU", "#4e79a7", lambda p: p.cpu),
    ("gpu", "GPU", "#e15759", lambda p: p.gpu),
    ("both", "GPU with transfers", "#f28e2b", lambda p: p.gpu_with_transfers),
)


@dataclass(frozen=True)
class _Axes:
    """Decades of both axes."""

    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, size: float) -> float:
        share = (log10(size) - self.x0) / (self.x1 - self.x0)
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    def y(self, ns: float) -> float:
        share = (log10(ns) - self.y0) / (self.y1 - self.y0)
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def plot(curve: Curve) -> str:
    """One operation as an ``<svg>`` element."""
    axes = _axes(curve)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="11" '
        f'role="img" aria-label="{escape(curve.operation)}: time over size">',
        f'<text x="{_LEFT}" y="16" font-size="13">{escape(curve.operation)} ({curve.dtype})</text>',
        *_grid(axes, curve),
        *_band(axes, curve.kernel_only, "#e15759", "gpu"),
        *_band(axes, curve.with_transfers, "#f28e2b", "both"),
    ]
    for position, (key, label, colour, of) in enumerate(_SERIES):
        parts += _line(axes, curve, key, colour, of)
        if any(of(p) for p in curve.points):
            x = WIDTH - 240 + (0, 40, 80)[position]
            parts.append(f'<text x="{x}" y="16" fill="{colour}" class="{key}">{label}</text>')
    return "\n".join([*parts, "</svg>"])


def _axes(curve: Curve) -> _Axes:
    times = [t.median_ns for p in curve.points for _, _, _, of in _SERIES if (t := of(p))]
    sizes = [p.size for p in curve.points]
    x0, x1 = log10(min(sizes)), log10(max(sizes))
    y0, y1 = floor(log10(min(times))), ceil(log10(max(times)))
    return _Axes(x0, max(x1, x0 + 0.3), float(y0), float(max(y1, y0 + 1)))


def _grid(axes: _Axes, curve: Curve) -> list[str]:
    parts = []
    for decade in range(int(axes.y0), int(axes.y1) + 1):
        y = axes.y(10.0**decade)
        parts.append(
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#666">'
            f"{duration(10.0**decade)}</text>"
        )
    for decade in range(ceil(axes.x0), floor(axes.x1) + 1):
        x = axes.x(10.0**decade)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}" stroke="#eee"/>'
            f'<text x="{x:.1f}" y="{HEIGHT - _BOTTOM + 14}" text-anchor="middle" fill="#666">'
            f"{10**decade:,}</text>"
        )
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(
        f'<text x="{middle:.0f}" y="{HEIGHT - 8}" text-anchor="middle" fill="#666">'
        f"{escape(curve.size_is)}</text>"
    )
    return parts


def _band(axes: _Axes, found: Crossing, colour: str, key: str) -> list[str]:
    """From the last size at which the CPU is surely faster to the first at which the GPU is."""
    if found.low is None or found.high is None:
        return []
    x0, x1 = axes.x(found.low), axes.x(found.high)
    return [
        f'<rect class="{key}" x="{x0:.1f}" y="{_TOP}" width="{max(x1 - x0, 1):.1f}" '
        f'height="{HEIGHT - _TOP - _BOTTOM}" fill="{colour}" opacity="0.15">'
        f"<title>crossing between {found.low:,} and {found.high:,}</title></rect>"
    ]


def _line(
    axes: _Axes, curve: Curve, key: str, colour: str, of: Callable[[Point], Time | None]
) -> list[str]:
    known = [(p.size, t) for p in curve.points if (t := of(p))]
    if not known:
        return []
    path = " ".join(f"{axes.x(s):.1f},{axes.y(t.median_ns):.1f}" for s, t in known)
    dots = [
        f'<circle class="{key}" cx="{axes.x(s):.1f}" cy="{axes.y(t.median_ns):.1f}" r="3" '
        f'fill="{colour}"><title>{s:,}: {duration(t.median_ns)} '
        f"({duration(t.low_ns)} to {duration(t.high_ns)})</title></circle>"
        for s, t in known
    ]
    line = f'<polyline class="{key}" points="{path}" fill="none" stroke="{colour}"/>'
    return [line, *dots]
