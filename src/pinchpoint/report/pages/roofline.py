"""The pages of the roofline: utilisation, roofs and points, and the ceilings that were measured."""

from collections.abc import Iterator

from pinchpoint.analysis.limits.roofline import FAR_FROM_BOTH_ROOFS
from pinchpoint.hardware.ceilings import Ceilings, Measurement, Refused
from pinchpoint.report.blocks import Block, Fact, Gap, Items, Page, Table, Text, Title
from pinchpoint.report.documents.order import field_named
from pinchpoint.report.documents.roofline import PointInfo, RoofInfo, RooflineDocument
from pinchpoint.report.quantity import duration, number, percent, rate
from pinchpoint.report.words.roofline import above_the_ceiling, utilisation_sentences

_ROWS = 20  # operators on a screen; the document has all
_HEADS = ("time", "type", "FLOP/B", "FLOP/s", "B/s", "bound", "of roof", "won")
_KINDS = {
    "copy": "memory, copy",
    "triad": "memory, triad",
    "read": "memory, read",
    "h2d-pinned": "host to device, pinned",
    "h2d-pageable": "host to device, pageable",
    "d2h-pinned": "device to host, pinned",
    "d2h-pageable": "device to host, pageable",
    "device-to-device": "device to device",
    "launch-host": "launch, host",
    "launch-device": "launch, back to back",
    "launch-latency": "launch and wait",
}


def roofline_page(
    document: RooflineDocument, *, sort: str | None = None, verbose: bool = False
) -> Page:
    """Utilisation, roofs, and the points with most time; FLOPs, bytes or calls that they are sorted
    by stand where the intensity does else."""
    field = field_named(document.points, sort) if sort is not None and document.points else None
    return Page(
        (
            Title(document.path, (document.device or "unknown device",)),
            Gap(),
            *_utilisation(document),
            _roofs(document),
            Gap(),
            *_points(document, field if field in _COUNTED else None, verbose),
        )
    )


def _utilisation(document: RooflineDocument) -> Iterator[Block]:
    if document.utilisation is not None:
        yield from (Text(text) for text in utilisation_sentences(document.utilisation))
        yield Gap()


def _roofs(document: RooflineDocument) -> Table:
    used = {p.dtype for p in document.points}
    roofs = [r for r in document.roofs if r.dtype is None or r.dtype in used]
    numeric = (False, True, True, False)
    return Table(("", "ceiling", "balance", "source"), tuple(map(_roof, roofs)), numeric)


def _roof(roof: RoofInfo) -> tuple[str, ...]:
    return (
        "roof memory" if roof.dtype is None else f"roof {roof.dtype}",
        rate(roof.per_s, "B/s" if roof.dtype is None else "FLOP/s"),
        "" if roof.balance is None else f"{number(roof.balance)} FLOP/byte",
        roof.source if roof.measured else roof.source.partition(" (")[0],
    )


_COUNTED = ("flops", "bytes", "calls")  # fields of a point that have no column else


def _points(document: RooflineDocument, counted: str | None, verbose: bool) -> Iterator[Block]:
    of_operators = document.what == "operators"
    if of_operators:
        yield Text(f"Whole recording: {duration(document.time_ns)} in kernels")
    yield Table(
        heads=("operator" if of_operators else "launch", *_with(_HEADS, counted, counted or "")),
        rows=tuple(_point_row(point, counted) for point in document.points),
        most=None if verbose else _ROWS,
        left_out=document.points_left_out,
        more="(--json has all, --verbose more)",
        dense=True,
    )
    time = "of all its calls in the recording" if of_operators else "of one launch"
    yield Text(f"time: {time}; won: what of it would go if it ran at its roof")
    if any(point.waits for point in document.points):
        far = f"{100 * FAR_FROM_BOTH_ROOFS:.0f}"
        yield Text(f"* below {far} % of its roof: it waits for neither memory nor arithmetic")
    notes = (*above_the_ceiling(document), *document.notes)
    if notes:
        yield Items(notes, "warning")


def _with(cells: tuple[str, ...], counted: str | None, text: str) -> tuple[str, ...]:
    """The cells of a row after its name, with what points are sorted by in place of intensity."""
    return cells if counted is None else (*cells[:2], text, *cells[3:])


def _point_row(point: PointInfo, counted: str | None) -> tuple[str, ...]:
    name, *cells = _row(point)
    if counted is None:
        return (name, *cells)
    value = getattr(point, counted)
    text = number(value) if counted == "calls" else rate(value, "").replace(" ", "")
    return (name, *_with(tuple(cells), counted, text))


def _row(point: PointInfo) -> tuple[str, ...]:
    name = point.name if point.launch is None else f"{point.launch} {point.name}"
    name = name.removeprefix("aten::")
    return (
        f"{name} {point.shapes}" if point.shapes else name,
        duration(point.time_ns),
        point.dtype or "-",
        "-" if point.intensity is None else number(point.intensity),
        rate(point.flop_per_s, "").replace(" ", ""),
        rate(point.bytes_per_s, "").replace(" ", ""),
        "?" if point.bound is None else point.bound + ("*" if point.waits else ""),
        "-" if point.roof_ratio is None else f"{percent(point.roof_ratio)} %",
        "-" if point.won_ns is None else duration(point.won_ns),
    )


def ceilings_page(ceilings: Ceilings, *, verbose: bool = False) -> Page:
    """What the machine reached, and what was refused."""
    measured = ceilings.measurements
    table = Table(
        heads=("measured", "reached", "of data sheet", "clock", "power"),
        rows=tuple(map(_measured, measured)),
        most=None,
        below=tuple(tuple(_how(m)) for m in measured) if verbose else (),
    )
    refused = tuple(map(_refused, ceilings.refused))
    doubts = (Items(refused, "warning"),) if refused else ()
    title = Title(f"{ceilings.device}, measured {ceilings.measured_at}")
    return Page((title, Gap(), table, *doubts))


def _measured(m: Measurement) -> tuple[str, ...]:
    name = f"product {m.dtype}, {m.mode}" if m.what == "gemm" else _KINDS.get(m.what, m.what)
    return (
        name if m.measured_at is None else f"{name}, of {m.measured_at[:10]}",
        _value(m.value, m.unit),
        "" if m.data_sheet_ratio is None else f"{percent(m.data_sheet_ratio)} %",
        "" if m.sm_clock_hz is None else f"{m.sm_clock_hz / 1e6:.0f} MHz",
        "" if m.power_w is None else f"{m.power_w:.0f} W",
    )


def _how(m: Measurement) -> Iterator[Fact]:
    spread = "" if m.spread_ratio is None else f", spread {percent(m.spread_ratio)} %"
    held = f", held down by {', '.join(m.throttled)}" if m.throttled else ""
    yield Fact("", f"{m.at}{spread}{held}")


def _refused(refused: Refused) -> str:
    what = " ".join(word for word in (refused.what, refused.dtype, refused.mode) if word)
    value = "" if not refused.value else f" {_value(refused.value, refused.unit)}"
    return f"{what}{value}: {refused.why}"


def _value(value: float, unit: str) -> str:
    if unit == "ns":
        return duration(value)
    return rate(value, "B/s" if unit == "bytes/s" else unit)
