"""The roofline for a terminal: utilisation, roofs, and the points with most time."""

from collections.abc import Iterator
from textwrap import wrap

from pinchpoint.analysis.roofline import FAR_FROM_BOTH_ROOFS
from pinchpoint.report.plain import ascii_only, plain
from pinchpoint.report.quantity import duration, number, percent
from pinchpoint.report.rates import rate
from pinchpoint.report.roofline_document import (
    PointInfo,
    RoofInfo,
    RooflineDocument,
)
from pinchpoint.report.roofline_words import above_the_ceiling, utilisation_sentences
from pinchpoint.report.terminal import Look

_ROWS = 20
_LEAST_NAME_WIDTH = 20
_PLAIN = Look()


def render_roofline(document: RooflineDocument, look: Look = _PLAIN) -> str:
    """The document as text that ends with a newline."""
    lines = [plain(f"{document.path} · {document.device or 'unknown device'}"), ""]
    if document.utilisation is not None:
        for sentence in utilisation_sentences(document.utilisation):
            lines += wrap(sentence, look.width, subsequent_indent="  ")
        lines.append("")
    lines += [*_roofs(document), ""]
    lines += _points(document, look)
    for words in _legend(document):
        lines += wrap(words, look.width, subsequent_indent="  ")
    for note in (*above_the_ceiling(document), *document.notes):
        lines += wrap(f"! {plain(note)}", look.width, subsequent_indent="  ")
    text = "\n".join(lines) + "\n"
    return text if look.unicode else ascii_only(text)


def _roofs(document: RooflineDocument) -> Iterator[str]:
    used = {p.dtype for p in document.points}
    for roof in document.roofs:
        if roof.dtype is None or roof.dtype in used:
            yield _roof(roof)


def _roof(roof: RoofInfo) -> str:
    name = "memory" if roof.dtype is None else roof.dtype
    unit = "B/s" if roof.dtype is None else "FLOP/s"
    meets = "" if roof.balance is None else f", balance {number(roof.balance)} FLOP/byte"
    source = roof.source if roof.measured else roof.source.partition(" (")[0]
    return f"roof {name:<8} {rate(roof.per_s, unit):>13}{meets}  ({source})"


def _legend(document: RooflineDocument) -> Iterator[str]:
    yield (
        "time: of all its calls in the recording; won: what of it would go if it ran at its roof"
        if document.what == "operators"
        else "time: of one launch; won: what of it would go if it ran at its roof"
    )
    if any(point.waits for point in document.points):
        far = f"{100 * FAR_FROM_BOTH_ROOFS:.0f}"
        yield f"* below {far} % of its roof: it waits for neither memory nor arithmetic"


_HEADS = ("time", "type", "FLOP/B", "FLOP/s", "B/s", "bound", "of roof", "won")
_WIDTHS = (7, 4, 6, 6, 6, 8, 7, 7)


def _points(document: RooflineDocument, look: Look) -> Iterator[str]:
    left = look.width - sum(_WIDTHS) - len(_WIDTHS)
    width = max(left, _LEAST_NAME_WIDTH)
    if document.what == "operators":
        yield f"Whole recording: {duration(document.time_ns)} in kernels"
    title = "operator" if document.what == "operators" else "launch"
    yield f"{title:<{width}}" + "".join(
        f" {head:>{w}}" for head, w in zip(_HEADS, _WIDTHS, strict=True)
    )
    rows = document.points if look.verbose else document.points[:_ROWS]
    for point in rows:
        yield _row(point, width)
    hidden = len(document.points) - len(rows) + document.points_left_out
    if hidden:
        yield f"and {hidden} more (--json has all, --verbose more)"


def _row(point: PointInfo, width: int) -> str:
    bound = "?" if point.bound is None else point.bound + ("*" if point.waits else "")
    cells = (
        duration(point.time_ns),
        point.dtype or "-",
        "-" if point.intensity is None else number(point.intensity),
        rate(point.flop_per_s, "").replace(" ", ""),
        rate(point.bytes_per_s, "").replace(" ", ""),
        bound,
        "-" if point.roof_ratio is None else f"{percent(point.roof_ratio)} %",
        "-" if point.won_ns is None else duration(point.won_ns),
    )
    name = point.name if point.launch is None else f"{point.launch} {point.name}"
    name = name.removeprefix("aten::")
    if point.shapes:
        name += f" {point.shapes}"
    label = name if len(name) <= width else name[: width - 1] + "…"
    return f"{label:<{width}}" + "".join(
        f" {cell:>{w}}" for cell, w in zip(cells, _WIDTHS, strict=True)
    )
