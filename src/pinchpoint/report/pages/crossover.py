"""The crossover explorer: a table for the terminal, and one self-contained HTML page."""

from html import escape

from pinchpoint.bench.crossover.crossing import Crossing, Point, Time
from pinchpoint.bench.crossover.measure import CrossoverResult, Curve
from pinchpoint.report.blocks import Table
from pinchpoint.report.html import fragment
from pinchpoint.report.pages.result import ResultPage, table
from pinchpoint.report.quantity import duration
from pinchpoint.report.svg import signed
from pinchpoint.report.svg.crossover import plot

_STYLE = """
body{font:14px/1.4 system-ui,sans-serif;max-width:1180px;margin:24px auto;padding:0 16px;color:#222}
table{border-collapse:collapse;margin:12px 0}td,th{padding:2px 10px;text-align:right}
td:first-child,th:first-child{text-align:left}tr:nth-child(even){background:#f6f6f6}
.plots{display:flex;flex-wrap:wrap;gap:12px}label{margin-right:14px}
body.no-cpu .cpu,body.no-gpu .gpu,body.no-both .both{display:none}
figure{margin:0;border:1px solid #ddd;border-radius:6px;padding:6px}figure[hidden]{display:none}
"""
_SCRIPT = """
for (const box of document.querySelectorAll('input[data-series]'))
  box.addEventListener('change', () =>
    document.body.classList.toggle('no-' + box.dataset.series, !box.checked));
for (const box of document.querySelectorAll('input[data-operation]'))
  box.addEventListener('change', () => {
    for (const figure of document.querySelectorAll('figure'))
      if (figure.dataset.operation === box.dataset.operation) figure.hidden = !box.checked;
  });
"""


def page(result: CrossoverResult) -> ResultPage:
    """One row an operation."""
    where = f"{result.cpu} ({result.cpu_threads} threads)"
    headline = f"{where} against {result.gpu}"
    if result.gpu is None:
        headline = (
            f"no GPU here ({result.unknown.get('gpu')}): only the CPU was measured, on {where}"
        )
    return ResultPage(
        title="CPU against GPU",
        headline=headline,
        tables=(_crossings(result), *(_times(c) for c in result.curves)),
        warnings=result.warnings,
        notes=(f"transfers: {result.transfers}",) if result.gpu else (),
    )


def in_words(found: Crossing) -> str:
    """``from 512 (362 to 724)``."""
    if found.verdict == "not measured":
        return "-"
    if found.verdict != "crosses" or found.estimate is None:
        return found.verdict.replace("gpu", "GPU").replace("cpu", "CPU")
    low = "?" if found.low is None else f"{found.low:,}"
    high = "?" if found.high is None else f"{found.high:,}"
    return f"from {found.estimate:,.0f} ({low} to {high})"


def _crossings(result: CrossoverResult) -> Table:
    return table(
        "GPU faster",
        ("", "size is", "kernel only", "with transfers", "CPU grows as", "GPU grows as"),
        tuple(
            (
                c.operation,
                c.size_is,
                in_words(c.kernel_only),
                in_words(c.with_transfers),
                _power(c.cpu_slope),
                _power(c.gpu_slope),
            )
            for c in result.curves
        ),
    )


def _power(slope: float | None) -> str:
    return "-" if slope is None else f"n^{slope:.1f}"


def _times(curve: Curve) -> Table:
    return table(
        curve.operation,
        ("", "CPU", "GPU", "GPU with transfers"),
        tuple(_row(p) for p in curve.points),
    )


def _row(point: Point) -> tuple[str, ...]:
    times = (point.cpu, point.gpu, point.gpu_with_transfers)
    return (f"{point.size:,}", *(_time(t) for t in times))


def _time(time: Time | None) -> str:
    return "-" if time is None else duration(time.median_ns)


def html(result: CrossoverResult) -> str:
    """One page without network: boxes choose operations and curves, dots tell their values."""
    shown = page(result)
    boxes = "".join(
        f'<label><input type="checkbox" checked data-series="{key}"> {label}</label>'
        for key, label in (("cpu", "CPU"), ("gpu", "GPU"), ("both", "GPU with transfers"))
    )
    operations = "".join(
        f'<label><input type="checkbox" checked data-operation="{escape(c.operation)}"> '
        f"{escape(c.operation)}</label>"
        for c in result.curves
    )
    figures = "".join(
        f'<figure data-operation="{escape(c.operation)}">{plot(c)}</figure>' for c in result.curves
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="generator" content="Pinchpoint">'
        f"<title>{escape(shown.title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(shown.title)}</h1><p>{escape(shown.headline)}</p>"
        f"<p>{boxes}</p><p>{operations}</p><div class='plots'>{figures}</div>"
        f"{fragment(shown.tables[:1])}<script>{_SCRIPT}</script></body></html>\n"
    )


def svg(result: CrossoverResult) -> str:
    """All operations below each other, as one SVG document."""
    from pinchpoint.report.svg.crossover import HEIGHT, WIDTH

    total = HEIGHT * len(result.curves)
    parts = [
        plot(c).replace("<svg ", f'<svg y="{i * HEIGHT}" ', 1) for i, c in enumerate(result.curves)
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{total}">'
    return signed("\n".join([head, *parts, "</svg>"]))
