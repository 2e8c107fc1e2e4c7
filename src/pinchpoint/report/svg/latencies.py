"""Percentiles of loads on a server with their intervals, a line each, on a scale of ratios."""

from collections.abc import Sequence
from math import log10

from pinchpoint.bench.metrics import RunMetrics, Summary
from pinchpoint.report.quantity import number

WIDTH, ROW = 1000, 26  # units of the drawing, scaled to the page; a row holds 16-unit text
_LEFT, _RIGHT, _TOP, _BOTTOM = 320, 40, 34, 34  # room for the labels, the key and the axis
MOST_LOADS = 5  # of each kind; the table has all
# Colours of the page, and the field of a summary with that of its interval.
PERCENTILES = (
    ("device", "median", "median_ci95"),
    ("idle", "p95", "p95_bounds"),
    ("exposed", "p99", "p99_bounds"),
)
Ends = tuple[float | None, float | None]


def latencies_svg(runs: Sequence[RunMetrics], kinds: dict[str, str]) -> str:
    """``kinds``: what to call each kind of latency. Empty where no load has a latency above 0."""
    rows = [
        (f"{label}, load {run.order_index + 1}" if len(runs) > 1 else label, found)
        for kind, label in kinds.items()
        for run in runs[:MOST_LOADS]
        if (found := (run.latency_ms or {}).get(kind)) is not None and found.count
    ]
    values = [v for _, s in rows for v in _values(s) if v > 0]
    if not values:
        return ""
    low, high = min(values) / 1.2, max(values) * 1.2
    height = _TOP + ROW * len(rows) + _BOTTOM

    def x(value: float) -> float:
        share = log10(max(value, low) / low) / log10(high / low)
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    marks = [low * (high / low) ** (i / 4) for i in range(5)]
    parts = [
        f'<line x1="{x(m):.1f}" y1="{_TOP}" x2="{x(m):.1f}" y2="{height - _BOTTOM}"'
        ' stroke="currentColor" stroke-opacity="0.15"/>'
        f'<text x="{x(m):.1f}" y="{height - 14}" text-anchor="middle">{number(m)} ms</text>'
        for m in marks
    ]
    parts += [
        f'<circle class="{colour}" cx="{_LEFT + 90 * i}" cy="14" r="5"/>'
        f'<text x="{_LEFT + 90 * i + 12}" y="19">{name}</text>'
        for i, (colour, name, _) in enumerate(PERCENTILES)
    ]
    for i, (label, found) in enumerate(rows):
        y = _TOP + ROW * (i + 0.5)
        parts.append(f'<text x="{_LEFT - 12}" y="{y + 5:.1f}" text-anchor="end">{label}</text>')
        for colour, field, ends in PERCENTILES:
            value = getattr(found, field)
            if value is None:
                continue
            left, right = _drawn(getattr(found, ends), value, high)
            said = f"{label}: {field} {number(value)} ms, {_said(getattr(found, ends))}"
            parts.append(
                f'<line style="stroke:var(--{colour})" stroke-width="3" x1="{x(left):.1f}"'
                f' y1="{y:.1f}" x2="{x(right):.1f}" y2="{y:.1f}"/>'
                f'<circle class="{colour}" cx="{x(value):.1f}" cy="{y:.1f}" r="5">'
                f"<title>{said}</title></circle>"
            )
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img"'
        ' aria-label="Percentiles of the latency and their intervals">' + "".join(parts) + "</svg>"
    )


def _values(found: Summary) -> list[float]:
    ends = [end for _, _, name in PERCENTILES for end in getattr(found, name) or ()]
    return [v for v in (found.median, found.p95, found.p99, *ends) if v is not None]


def _drawn(ends: Ends | None, value: float, high: float) -> tuple[float, float]:
    """An open upper end goes to the edge of the drawing."""
    if ends is None or ends == (None, None):
        return value, value
    low, up = ends
    return value if low is None else low, high if up is None else up


def _said(ends: Ends | None) -> str:
    if ends is None or ends == (None, None):
        return "no interval"
    low, up = ends
    if up is None:
        return f"at least {number(low or 0.0)} (95 %)"
    return f"{number(low)} to {number(up)} (95 %)" if low is not None else f"at most {number(up)}"
