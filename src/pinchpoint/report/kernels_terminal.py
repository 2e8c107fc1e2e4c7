"""Profiled launches for a terminal: a line each, what holds it back, and its metrics with marks."""

from collections.abc import Iterator

from pinchpoint.report.document import ResultTable
from pinchpoint.report.kernels_document import KernelsDocument, LaunchInfo, MarkInfo
from pinchpoint.report.plain import ascii_only, plain
from pinchpoint.report.quantity import duration, number, percent, quantity
from pinchpoint.report.terminal import Look

_ROWS = 20
_TABLE_COLUMNS = 7  # of the kernel table; --json has all
_PLAIN = Look()
_SIGN = {"good": "+", "fair": "o", "poor": "-", None: " "}


def render_kernels(document: KernelsDocument, look: Look = _PLAIN) -> str:
    """The document as text that ends with a newline."""
    lines = [plain(f"{document.path} · {document.device or 'unknown device'}"), ""]
    if document.launches:
        lines += _launches(document, look)
    elif document.kernels is not None and document.kernels.rows:
        lines += _table(document.kernels, look)
    for summary in document.summaries:
        lines += _summary(summary["columns"], summary["rows"], look)
    if document.record:
        lines += ["", f"No hardware counters in it. To record them: {document.record}"]
    text = "\n".join(lines) + "\n"
    return text if look.unicode else ascii_only(text)


def _launches(document: KernelsDocument, look: Look) -> Iterator[str]:
    shown = document.launches if look.verbose else document.launches[:_ROWS]
    for launch in shown:
        yield _headline(launch, look.width)
        for issue in launch.issues:
            yield f"    {issue.id:<22} {issue.text}"
        if look.verbose:
            yield from _details(launch)
    if len(document.launches) > len(shown):
        yield f"and {len(document.launches) - len(shown)} more launches (--verbose, --json)"
    yield ""
    yield "pinchpoint explain ID says what each means and how to fix it; --verbose has metrics"


def _headline(launch: LaunchInfo, width: int) -> str:
    time = "?" if launch.time_ns is None else duration(launch.time_ns)
    bound = "" if launch.bound is None else f"{launch.bound}-bound"
    reached = "" if launch.roof_ratio is None else f"{percent(launch.roof_ratio)} % of roof"
    figures = f"{time:>8}  {bound:<13} {reached}"
    name = f"{launch.number} {launch.name}"
    room = max(width - len(figures) - 2, 20)
    return f"{name if len(name) <= room else name[: room - 1] + '…':<{room}}  {figures}"


def _details(launch: LaunchInfo) -> Iterator[str]:
    if launch.how:
        yield f"    {launch.how}"
    for mark in launch.marks:
        if mark.value is not None:
            yield f"    {_SIGN[mark.mark]} {_mark(mark)}"
    if launch.stalls:
        top = [f"{r.replace('_', ' ')} {number(c)}" for r, c in list(launch.stalls.items())[:5]]
        yield f"    cycles between instructions: {', '.join(top)}"
    for said in launch.nvidia:
        if said.kind in ("OPT", "WRN"):
            gain = "" if said.speedup_percent is None else f" ({number(said.speedup_percent)} %)"
            yield f"    NVIDIA {said.rule or said.section}{gain}: {plain(said.text, 160)}"
    yield ""


def _mark(mark: MarkInfo) -> str:
    value = f"{number(mark.value or 0.0)} {mark.unit}"
    if mark.mark is None:
        return f"{mark.metric:<28} {value}"
    return f"{mark.metric:<28} {value:<16} {mark.mark} (good {mark.good}, poor {mark.poor})"


def _table(table: ResultTable, look: Look) -> Iterator[str]:
    columns = table.columns[:_TABLE_COLUMNS]
    rows = [
        [
            "" if v is None else plain(quantity(v, c.unit))
            for v, c in zip(row, columns, strict=False)
        ]
        for row in (table.rows if look.verbose else table.rows[:_ROWS])
    ]
    yield from _aligned([c.label for c in columns], rows, look.width)
    if table.note:
        yield table.note


def _summary(columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...], look: Look) -> list[str]:
    """A table of nsys stats, its name column first."""
    order = sorted(range(len(columns)), key=lambda i: columns[i] not in ("Name", "Operation"))
    head = [plain(columns[i]) for i in order]
    body = [[plain(row[i]) for i in order] for row in (rows if look.verbose else rows[:_ROWS])]
    return list(_aligned(head, body, look.width))


def _aligned(head: list[str], rows: list[list[str]], width: int) -> Iterator[str]:
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(1, len(head))]
    first = max(width - sum(widths) - 2 * len(widths), 20)
    for row in [head, *rows]:
        name = row[0] if len(row[0]) <= first else row[0][: first - 1] + "…"
        cells = "".join(f"  {cell:>{w}}" for cell, w in zip(row[1:], widths, strict=True))
        yield f"{name:<{first}}{cells}"
