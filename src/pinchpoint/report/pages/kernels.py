"""The page of profiled launches: what holds each back, and its metrics with marks."""

from collections.abc import Iterator

from pinchpoint.report.assemble.kernels import KernelsDocument, LaunchInfo, MarkInfo
from pinchpoint.report.blocks import Block, Command, Fact, Gap, Page, Table, Text, Title
from pinchpoint.report.documents.report import ResultTable
from pinchpoint.report.plain import plain
from pinchpoint.report.quantity import duration, number, percent, quantity

_ROWS = 20  # kernels on a screen; the document has all
_QUOTE = 160  # characters of what a rule of NVIDIA says; --json has more
_LEAST_NAME = 24  # columns of a name; two kernels must not look the same
_TABLE_COLUMNS = 7  # of the kernel table; --json has all
_NO_COUNTERS = "What holds a kernel back, its hardware counters tell. To record the heaviest:"
_SIGN = {"good": "+", "fair": "o", "poor": "-", None: " "}
_LIMITS = {
    "kernel-compute-bound": "compute-bound",
    "kernel-memory-bound": "memory-bound",
    "kernel-latency-bound": "latency-bound",
    "kernel-too-small": "too small",
}


def kernels_page(document: KernelsDocument, *, verbose: bool = False) -> Page:
    """Launches where they were profiled, else the kernels of the timeline."""
    return Page(
        (
            Title(document.path, (document.device or "unknown device",)),
            Gap(),
            *_kernels(document, None if verbose else _ROWS, verbose),
        )
    )


def _kernels(document: KernelsDocument, most: int | None, verbose: bool) -> Iterator[Block]:
    if document.launches:
        yield _launches(document.launches, most, verbose)
        yield Gap()
        yield Text("pinchpoint explain ID says what each means; --verbose shows the metrics")
    elif document.kernels is not None and document.kernels.rows:
        yield _table(document.kernels, most)
    elif not document.summaries:
        yield Text("No kernels: the recording has no device activity.")
    for summary in document.summaries:
        yield _summary(summary["columns"], summary["rows"], most)
    if document.record:
        yield Gap()
        yield Text(_NO_COUNTERS)
        yield Command(document.record, "")


def _launches(launches: tuple[LaunchInfo, ...], most: int | None, verbose: bool) -> Table:
    return Table(
        heads=("launch", "time", "bound", "reached"),
        rows=tuple(
            (
                f"{launch.number} {launch.name}",
                "?" if launch.time_ns is None else duration(launch.time_ns),
                _limit(launch),
                _reached(launch),
            )
            for launch in launches
        ),
        numeric=(False, True, False, True),
        most=most,
        more="launches (--verbose, --json)",
        below=tuple(tuple(_below(launch, verbose)) for launch in launches),
        spaced=verbose,
    )


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


def _below(launch: LaunchInfo, verbose: bool) -> Iterator[Fact]:
    yield from (Fact(issue.id, issue.text) for issue in launch.issues)
    if not verbose:
        return
    if launch.how:
        yield Fact("", launch.how)
    yield from (_mark(mark) for mark in launch.marks if mark.value is not None)
    if launch.stalls:
        top = [f"{r.replace('_', ' ')} {number(c)}" for r, c in list(launch.stalls.items())[:5]]
        yield Fact("", f"cycles between instructions: {', '.join(top)}")
    for rule in launch.nvidia:
        if rule.kind in ("OPT", "WRN"):
            gain = "" if rule.speedup_percent is None else f" ({number(rule.speedup_percent)} %)"
            text = f"NVIDIA {rule.rule or rule.section}{gain}: {plain(rule.text, _QUOTE)}"
            yield Fact("", text)


def _mark(mark: MarkInfo) -> Fact:
    value = f"{number(mark.value or 0.0)} {mark.unit}"
    if mark.mark is not None:
        value = f"{value:<15} {mark.mark} (good {mark.good}, poor {mark.poor})"
    return Fact(f"{_SIGN[mark.mark]} {mark.metric}", value)


def _table(table: ResultTable, most: int | None) -> Table:
    columns = table.columns[:_TABLE_COLUMNS]
    return Table(
        heads=tuple(column.label for column in columns),
        rows=tuple(
            tuple(
                "" if value is None else quantity(value, column.unit)
                for value, column in zip(row, columns, strict=False)
            )
            for row in table.rows
        ),
        note=table.note,
        most=most,
        left_out=table.rows_left_out,
        more="kernels (--verbose, --json)",
        least=_LEAST_NAME,
    )


def _summary(
    columns: tuple[str, ...], rows: tuple[tuple[str, ...], ...], most: int | None
) -> Table:
    """A table of nsys stats, its name column first."""
    order = sorted(range(len(columns)), key=lambda i: columns[i] not in ("Name", "Operation"))
    from pinchpoint.report.tables.names import ROOM, room_of, told_apart  # of few recordings

    body = tuple(tuple(row[i] for i in order) for row in rows)
    names = [row[0] for row in body[:_ROWS]]
    apart = told_apart(names, ROOM)
    body = tuple((n, *row[1:]) for n, row in zip(apart, body, strict=False)) + body[_ROWS:]
    heads = tuple(columns[i] for i in order)
    more = "rows (--verbose, --json)"
    return Table(heads, body, most=most, more=more, least=max(room_of(names), _LEAST_NAME))
