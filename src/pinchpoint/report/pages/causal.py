"""The page of the causal profile: what the step would be without each of its pieces."""

from collections.abc import Iterator

from pinchpoint.report.blocks import Block, Gap, Page, Table, Text, Title
from pinchpoint.report.documents.causal import CausalDocument, PieceInfo
from pinchpoint.report.quantity import duration, number

_ROWS = 8  # of each cut, for a terminal
_TITLES = {
    "operator": "operators",
    "kernel": "kernels",
    "line": "lines of the program",
    "function": "Python functions",
    "module": "modules",
    "phase": "marked phases",
    "copy": "copies",
    "collective": "collectives",
    "wait": "calls that wait for the device",
}


def causal_page(document: CausalDocument, *, verbose: bool = False) -> Page:
    """All cuts that have pieces, one table each."""
    return Page((*_head(document), *_tables(document, verbose)))


def _head(document: CausalDocument) -> Iterator[Block]:
    yield Title(document.path)
    if document.why_not is not None or document.base_ns is None:
        yield Text(f"No causal profile: {document.why_not}.", "bad")
        yield Text("CPU and device activity together, over two steps or more", label="Record")
        return
    yield Text(f"The {document.base} takes {duration(document.base_ns)}. What it would be:")


def _tables(document: CausalDocument, verbose: bool) -> Iterator[Block]:
    for by, title in _TITLES.items():
        mine = [piece for piece in document.pieces if piece.by == by]
        if not mine:
            continue
        yield Gap()
        yield Table(
            heads=(title, "takes", "at least", "without it", "at limit", "no host"),
            rows=tuple(map(_row, mine)),
            most=None if verbose else _ROWS,
            more="(--json has all, --verbose more)",
            dense=True,
        )
    if document.pieces:
        yield Gap()
        yield Text(
            "takes: host and device time, added; at least: what its device work needs, and how many"
            " times that it takes. The step without it, with its device work at that limit, and"
            " without its host time. -: not known"
        )


def _row(piece: PieceInfo) -> tuple[str, ...]:
    limit = "-" if piece.limit_ns is None else duration(piece.limit_ns)
    if piece.limit_ns is not None and piece.limit_ns and piece.device_ns > 2 * piece.limit_ns:
        limit += f" ({number(piece.device_ns / piece.limit_ns)} ×)"
    at_limit = "-" if piece.limit_ns is None else duration(piece.step_at_limit_ns)
    return (
        piece.name,
        duration(piece.occupied_ns),
        limit,
        duration(piece.step_if_free_ns),
        at_limit,
        duration(piece.step_without_host_ns),
    )
