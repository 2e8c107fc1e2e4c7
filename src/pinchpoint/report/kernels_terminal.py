"""Profiled launches for a terminal: a line each, what holds it back, and its metrics with marks."""

from collections.abc import Iterator
from textwrap import wrap

from pinchpoint.analysis.kernel_issues import IssueKind
from pinchpoint.report.document import ResultTable
from pinchpoint.report.kernels_document import KernelsDocument, LaunchInfo, MarkInfo
from pinchpoint.report.plain import ascii_only, middle_cut, plain
from pinchpoint.report.quantity import duration, number, percent, quantity
from pinchpoint.report.terminal import Look

_ROWS = 20
_QUOTE = 160  # characters of what a rule of NVIDIA says; --json has more
_ID_WIDTH = 22  # the longest id of a rule about kernels
_LEAST_NAME = 24  # columns of a name; two kernels must not look the same
_TABLE_COLUMNS = 7  # of the kernel table; --json has all
_NO_COUNTERS = "What holds a kernel back, its hardware counters tell. To record the heaviest:"
_PLAIN = Look()
_SIGN = {"good": "+", "fair": "o", "poor": "-", None: " "}


_LIMITS: dict[str, str] = {
    IssueKind.COMPUTE_BOUND: "compute-bound",
    IssueKind.MEMORY_BOUND: "memory-bound",
    IssueKind.LATENCY_BOUND: "latency-bound",
    IssueKind.TOO_SMALL: "too small",
}


def render_kernels(document: KernelsDocument, look: Look = _PLAIN) -> str:
    """The document as text that ends with a newline."""
    lines = [plain(f"{document.path} · {document.device or 'unknown device'}"), ""]
    if document.launches:
        lines += _launches(document, look)
    elif document.kernels is not None and document.kernels.rows:
        lines += _table(document.kernels, look)
    elif not document.summaries:
        lines += ["No kernels: the recording has no device activity."]
    for summary in document.summaries:
        lines += _summary(summary["columns"], summary["rows"], look)
    if document.record:
        lines += ["", _NO_COUNTERS, f"  {plain(document.record)}"]
    text = "\n".join(lines) + "\n"
    return text if look.unicode else ascii_only(text)


def _launches(document: KernelsDocument, look: Look) -> Iterator[str]:
    shown = document.launches if look.verbose else document.launches[:_ROWS]
    for launch in shown:
        yield _headline(launch, look.width)
        for issue in launch.issues:
            text = f"    {issue.id:<{_ID_WIDTH}} {plain(issue.text)}"
            yield from wrap(text, look.width, subsequent_indent=" " * (_ID_WIDTH + 5))
        if look.verbose:
            yield from _details(launch, look.width)
    if len(document.launches) > len(shown):
        yield f"and {len(document.launches) - len(shown)} more launches (--verbose, --json)"
    yield ""
    yield "pinchpoint explain ID says what each means; --verbose shows the metrics"


def _headline(launch: LaunchInfo, width: int) -> str:
    time = "?" if launch.time_ns is None else duration(launch.time_ns)
    figures = f"{time:>8}  {_limit(launch):<13} {_reached(launch)}"
    name = f"{launch.number} {launch.name}"
    room = max(width - len(figures) - 2, 20)
    return f"{name if len(name) <= room else name[: room - 1] + '…':<{room}}  {figures}"


def _limit(launch: LaunchInfo) -> str:
    """What the counters say holds it back; without such a word, the roof above it."""
    for issue in launch.issues:
        if issue.id in _LIMITS:
            return _LIMITS[issue.id]
    return "" if launch.bound is None else f"{launch.bound}-bound"


def _reached(launch: LaunchInfo) -> str:
    if launch.roof_ratio is None:
        return ""
    roof = "" if launch.bound is None else f"{launch.bound} "
    return f"{percent(launch.roof_ratio)} % of its {roof}roof"


def _details(launch: LaunchInfo, width: int) -> Iterator[str]:
    said = [launch.how] if launch.how else []
    said += [f"{_SIGN[m.mark]} {_mark(m)}" for m in launch.marks if m.value is not None]
    if launch.stalls:
        top = [f"{r.replace('_', ' ')} {number(c)}" for r, c in list(launch.stalls.items())[:5]]
        said.append(f"cycles between instructions: {', '.join(top)}")
    for rule in launch.nvidia:
        if rule.kind in ("OPT", "WRN"):
            gain = "" if rule.speedup_percent is None else f" ({number(rule.speedup_percent)} %)"
            said.append(f"NVIDIA {rule.rule or rule.section}{gain}: {plain(rule.text, _QUOTE)}")
    for text in said:
        yield from wrap(text, width, initial_indent="    ", subsequent_indent="      ")
    yield ""


def _mark(mark: MarkInfo) -> str:
    value = f"{number(mark.value or 0.0)} {mark.unit}"
    if mark.mark is None:
        return f"{mark.metric:<22} {value}"
    return f"{mark.metric:<22} {value:<15} {mark.mark} (good {mark.good}, poor {mark.poor})"


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
    while len(widths) > 1 and width - sum(widths) - 2 * len(widths) < _LEAST_NAME:
        del widths[-1]  # --json has all columns
    first = max(width - sum(widths) - 2 * len(widths), 20)
    for row in [head, *rows]:
        name = middle_cut(row[0], first)
        cells = "".join(f"  {cell:>{w}}" for cell, w in zip(row[1:], widths, strict=False))
        yield f"{name:<{first}}{cells}".rstrip()
