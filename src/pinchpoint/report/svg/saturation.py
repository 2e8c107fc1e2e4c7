"""What a server answers and how long it takes, over the rate of requests; the knee as a line."""

from collections.abc import Callable, Sequence
from math import log10

from pinchpoint.bench.serve.sweep import Sweep, SweepPoint
from pinchpoint.report.quantity import number

WIDTH, HEIGHT = 1000, 260  # units of the drawing, scaled to the page; of each of the two plots
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 200, 34, 36  # room for labels of 16-unit text
Get = Callable[[SweepPoint], float | None]
RATES: tuple[tuple[str, str, Get], ...] = (
    ("soft-fill", "sent", lambda p: p.offered_per_s),
    ("device", "answered", lambda p: p.answered_per_s),
    ("good-fill", "meets the objectives", lambda p: p.goodput_per_s),
)
LATENCIES: tuple[tuple[str, str, Get], ...] = (
    ("device", "end to end, median", lambda p: p.e2e_ms.median if p.e2e_ms else None),
    ("idle", "end to end, p95", lambda p: p.e2e_ms.p95 if p.e2e_ms else None),
    ("exposed", "end to end, p99", lambda p: p.e2e_ms.p99 if p.e2e_ms else None),
    ("host", "first token, p95", lambda p: p.ttft_ms.p95 if p.ttft_ms else None),
)


# Colours of the page: what its classes fill with, lines are drawn with.
_VARIABLES = {"soft-fill": "soft", "good-fill": "good"} | {
    name: name for name in ("device", "idle", "exposed", "host")
}


def saturation_svg(found: Sweep) -> str:
    """Two plots above each other, with one axis of rates."""
    parts = [
        *_plot(found, RATES, 0, "requests a second", log=False),
        *_plot(found, LATENCIES, HEIGHT, "ms", log=True),
    ]
    return (
        f'<svg viewBox="0 0 {WIDTH} {2 * HEIGHT}" role="img"'
        ' aria-label="Answers and latency over the rate of requests">' + "".join(parts) + "</svg>"
    )


def _plot(
    found: Sweep, lines: Sequence[tuple[str, str, Get]], top: float, unit: str, *, log: bool
) -> list[str]:
    known = [(c, label, _known(found, get)) for c, label, get in lines]
    drawn = [(c, label, points) for c, label, points in known if len(points) > 1]
    values = [value for _, _, points in drawn for _, value in points]
    if not values or max(values) <= 0:
        return []
    most_rate = max(p.rate_per_s for p in found.points)
    least = max(min(values), 1e-3)  # a microsecond: no answer is quicker
    low, high = (least / 1.3, max(values) * 1.3) if log else (0.0, max(values) * 1.1)

    def x(rate: float) -> float:
        return _LEFT + rate / most_rate * (WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        share = log10(max(value, low) / low) / log10(high / low) if log else value / high
        return top + HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)

    marks = [low * (high / low) ** (i / 3) if log else high * i / 3 for i in range(4)]
    parts = [_text(8, top + 14, unit, "start")]
    parts += [_text(_LEFT - 8, y(m) + 4, number(m), "end") for m in marks]
    parts += [_line(_LEFT, y(m), WIDTH - _RIGHT, y(m), "0.15") for m in marks]
    parts += [
        _text(x(p.rate_per_s), top + HEIGHT - 16, number(p.rate_per_s), "middle")
        for p in found.points
    ]
    if found.knee_per_s is not None:
        at = x(found.knee_per_s)
        parts += [_line(at, top + _TOP, at, top + HEIGHT - _BOTTOM, "0.8")]
        parts += [_text(at - 6, top + _TOP + 14, f"knee {number(found.knee_per_s)}/s", "end")]
    ends = _apart([y(points[-1][1]) for _, _, points in drawn])
    for (colour, label, points), end in zip(drawn, ends, strict=True):
        way = " ".join(f"{x(rate):.1f},{y(value):.1f}" for rate, value in points)
        parts += [
            f'<polyline style="fill:none;stroke:var(--{_VARIABLES[colour]})" points="{way}"'
            ' stroke-width="2"/>',
            *(
                f'<circle class="{colour}" cx="{x(rate):.1f}" cy="{y(value):.1f}" r="3">'
                f"<title>{label}: {number(value)} at {number(rate)}/s</title></circle>"
                for rate, value in points
            ),
            f'<text class="{colour}" x="{WIDTH - _RIGHT + 8}" y="{end + 4:.1f}">{label}</text>',
        ]
    return parts


def _known(found: Sweep, get: Get) -> list[tuple[float, float]]:
    values = [(p.rate_per_s, get(p)) for p in found.points]
    return [(rate, value) for rate, value in values if value is not None]


def _apart(heights: list[float]) -> list[float]:
    """The heights of labels, a line of text apart, in their order."""
    placed: dict[int, float] = {}
    last = -1e9
    for i in sorted(range(len(heights)), key=lambda i: heights[i]):
        last = placed[i] = max(heights[i], last + 18)
    return [placed[i] for i in range(len(heights))]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, opacity: str) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="currentColor"'
        f' stroke-opacity="{opacity}"/>'
    )
