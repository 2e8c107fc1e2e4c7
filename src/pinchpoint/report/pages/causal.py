"""The page of the causal profile: what the step would be without each of its pieces."""

from collections.abc import Iterator, Sequence

from pinchpoint.analysis.causal.piece import LEAST_STEP_RATIO
from pinchpoint.report.blocks import Block, Figure, Gap, Page, Table, Text, Title
from pinchpoint.report.documents.causal import (
    CausalDocument,
    CausalJobDocument,
    CriticalPathInfo,
    JobPieceInfo,
    PieceInfo,
    ladder,
)
from pinchpoint.report.documents.order import field_named
from pinchpoint.report.documents.report import QueueInfo
from pinchpoint.report.plain import middle_cut
from pinchpoint.report.quantity import duration, number, quantity

_ROWS = 8  # of each cut, for a terminal
_TITLES = {
    "operator": "operators",
    "kernel": "kernels",
    "line": "lines of the program",
    "function": "Python functions",
    "module": "modules",
    "phase": "phases",
    "copy": "copies",
    "collective": "collectives",
    "wait": "calls that wait for the device",
}


def causal_page(
    document: CausalDocument,
    *,
    by: str | None = None,
    sort: str | None = None,
    verbose: bool = False,
) -> Page:
    """The largest pieces and the critical path as pictures; all cuts, one table each.

    ``by``: the one cut that was asked for, which is also said to have no pieces; ``sort``: the
    field that pieces are in the order of, which gets a column.
    """
    blocks = (*_head(document), *_pictures(document), *_tables(document, sort, verbose))
    empty = by is not None and document.base_ns is not None and not document.pieces
    return Page((*blocks, *(_nothing(by) if by is not None and empty else ())))


def _head(document: CausalDocument) -> Iterator[Block]:
    yield Title(document.path)
    if document.why_not is not None or document.base_ns is None:
        yield Text(f"No causal profile: {document.why_not}.", "bad")
        yield Text("CPU and device activity together, over two steps or more", label="Record")
        return
    yield Text(f"The {document.base} takes {duration(document.base_ns)}. What it would be:")
    if document.held_up:
        yield Text("Other programs had its cores for a part of the time, and waiting is in it.")


def _pictures(document: CausalDocument) -> Iterator[Block]:
    """The ladder, and the path below it."""
    base = document.base_ns or 0
    from pinchpoint.report.svg.causal import PATH_KINDS, ladder_svg, path_svg

    if rungs := ladder(document.pieces):
        yield Gap()
        yield Figure(
            "The step without each of its largest pieces",
            tuple(_rung(base, piece) for piece in rungs),
            lambda: ladder_svg(base, rungs),
            "Pale: what the piece is worth; the mark: the step with it at its limit. Pieces"
            " overlap, so that their gains do not add up.",
        )
    if path := document.critical_path:
        yield Gap()
        yield Figure(
            "The critical path of a step",
            (_lane(path), f"  {_key(path)}"),
            lambda: path_svg(path.stretches),
            legend=tuple(PATH_KINDS[kind] for kind, ns in path.ns_per_step.items() if ns),
        )
        yield Text(path_sentence(path))


_BAR_WIDTH, _NAME_WIDTH = 26, 30  # characters, for a terminal of 80


def _rung(base_ns: int, piece: PieceInfo) -> str:
    left = round(_BAR_WIDTH * piece.step_if_free_ns / max(base_ns, 1))
    bar = "█" * left + "░" * (_BAR_WIDTH - left)
    name = middle_cut(piece.name, _NAME_WIDTH)
    return f"  {name:{_NAME_WIDTH}} {bar} {duration(piece.step_if_free_ns)}"


_SHADES = {"device": "█", "start": "▒", "call": "▓", "host": "░", "batch": "·"}
_LANE_WIDTH = 76  # characters; a terminal of 80 has room for it


def _lane(path: CriticalPathInfo) -> str:
    whole = max((s.start_ns + s.duration_ns for s in path.stretches), default=0) or 1
    shades = ""
    for stretch in path.stretches:
        until = round(_LANE_WIDTH * (stretch.start_ns + stretch.duration_ns) / whole)
        shades += _SHADES[stretch.kind] * (until - len(shades))
    return f"  {shades}"


def _key(path: CriticalPathInfo) -> str:
    drawn = {stretch.kind for stretch in path.stretches}
    return "  ".join(f"{shade} {kind}" for kind, shade in _SHADES.items() if kind in drawn)


def path_sentence(path: CriticalPathInfo) -> str:
    """What the path of a step is made of, most first."""
    whole = sum(path.ns_per_step.values()) or 1
    parts = sorted(path.ns_per_step.items(), key=lambda part: -part[1])
    from pinchpoint.report.svg.causal import PATH_KINDS

    said = (
        f"{PATH_KINDS[kind][1]} {100 * ns / whole:.0f} %"
        for kind, ns in parts
        if ns >= LEAST_SAID_RATIO * whole
    )
    return f"What the end of a step waited for, back to its beginning: {', '.join(said)}."


def queue_sentence(queue: QueueInfo | None) -> str:
    """How often the device had nothing to do when work was issued."""
    if queue is None:
        return ""
    return f"{100 * queue.empty_ratio:.0f} % of launches found nothing queued or running."


_LEVELS = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 40  # characters, three of the 120 parts in each: with words they fit 80


def queue_curves(queue: QueueInfo) -> Iterator[Block]:
    """Queue depth and launch latency over the recorded steps, a line of blocks each."""
    deepest = max((d for d in queue.depth if d is not None), default=0.0)
    longest = max((ns for ns in queue.latency_ns if ns is not None), default=0)
    lines = (
        f"  {'depth':8} {_curve(queue.depth)} up to {deepest:,.0f}",
        f"  {'latency':8} {_curve(queue.latency_ns)} up to {duration(longest)}",
    )
    yield Figure("Queue before the device, and launch latency, over the recorded steps", lines)
    yield Text(
        "Operations issued before and not ended, and from the launching call to the start on the"
        f" device; medians of launches. {queue_sentence(queue)}"
    )


def _curve(values: Sequence[float | None]) -> str:
    top = max((value for value in values if value is not None), default=0) or 1
    wide = -(-len(values) // _CURVE_WIDTH) or 1
    most = (
        max((v for v in values[at : at + wide] if v is not None), default=None)
        for at in range(0, len(values), wide)
    )
    steps = len(_LEVELS) - 1
    return "".join(" " if v is None else _LEVELS[round(steps * v / top)] for v in most)


LEAST_SAID_RATIO = 0.005  # less is 0 % in words


def _nothing(by: str) -> Iterator[Block]:
    """Of a cut without pieces, why."""
    least = f"{100 * LEAST_STEP_RATIO:.0f} %"
    yield Gap()
    yield Text(f"No {_ONE[by]} takes {least} of the step or more.{_NEEDS.get(by, '')}")


_ONE = {
    "operator": "operator of a framework",
    "kernel": "kernel",
    "line": "line of the program",
    "function": "Python function",
    "module": "module",
    "phase": "phase",
    "copy": "copy",
    "collective": "collective",
    "wait": "call that waits for the device",
}
_STACKS = " Of PyTorch they are recorded with stacks (with_stack=True)."
_NEEDS = {"line": _STACKS, "function": _STACKS, "module": _STACKS}


def _tables(document: CausalDocument, sort: str | None, verbose: bool) -> Iterator[Block]:
    field = field_named(document.pieces, sort) if sort is not None and document.pieces else None
    extra = None if field in (None, "by", "name", *_SHOWN_FIELDS) else field
    for by, title in _TITLES.items():
        mine = [piece for piece in document.pieces if piece.by == by]
        if not mine:
            continue
        yield Gap()
        yield Table(
            heads=tuple(_with(_HEADS, extra and _words(extra), title)),
            rows=tuple(tuple(_with(_row(p), extra and _told(p, extra), p.name)) for p in mine),
            most=None if verbose else _ROWS,
            more="(--json has all, --verbose more)",
            dense=True,
        )
    if document.pieces:
        yield Gap()
        yield Text(
            _ON_CPUS
            if document.on_cpus
            else "takes: host and device time, added; at least: what its device work needs, and how"
            " many times that it takes. The step without it, with its device work at that limit,"
            " and without its host time; critical: what of it is on the critical path"
            f"{_OF_NAMES * document.names_apart}. -: not known"
        )


_ON_CPUS = (
    "takes: time on the thread of the steps, none of which is hidden; at least: what one core of a"
    " slow server would take for its operators, if that is less, and how many times that it takes."
    " The step without it, and with it at that limit. -: not known"
)


_OF_NAMES = " of the steps recorded with names, which differs from the one above"


_HEADS = ("takes", "at least", "without it", "at limit", "no host", "critical")
_SHOWN_FIELDS = (
    "occupied_ns", "limit_ns", "step_if_free_ns", "step_at_limit_ns", "step_without_host_ns",
    "critical_ns",
)  # fmt: skip


def _with(cells: tuple[str, ...], extra: str | None, first: str) -> Iterator[str]:
    """A row with what pieces are in the order of; a terminal has no room for one more column."""
    yield first
    if extra is not None:
        yield extra
    yield from cells if extra is None else (*cells[:4], cells[5])


def _words(field: str) -> str:
    return field.removesuffix("_ns").replace("_", " ")


def _told(piece: PieceInfo, field: str) -> str:
    value = getattr(piece, field)
    if value is None:
        return "-"
    if isinstance(value, str):
        return middle_cut(value, _NAME_WIDTH)
    unit = next((u for u in ("ns", "bytes", "ratio") if field.endswith(f"_{u}")), "count")
    return quantity(value, unit)


def _row(piece: PieceInfo) -> tuple[str, ...]:
    limit = "-" if piece.limit_ns is None else duration(piece.limit_ns)
    worked_ns = piece.device_ns or piece.host_ns  # without a device, the host does the work
    if piece.limit_ns is not None and piece.limit_ns and worked_ns > 2 * piece.limit_ns:
        limit += f" ({number(worked_ns / piece.limit_ns)} ×)"
    at_limit = "-" if piece.limit_ns is None else duration(piece.step_at_limit_ns)
    return (
        duration(piece.occupied_ns),
        limit,
        duration(piece.step_if_free_ns),
        at_limit,
        duration(piece.step_without_host_ns),
        "-" if piece.critical_ns is None else duration(piece.critical_ns),
    )


# ------------------------------------------------------------------------------------------------
# The page of a job: a piece of one rank, or of all.


def causal_job_page(document: CausalJobDocument) -> Page:
    """What the job's step would be without the pieces of its ranks."""
    return Page(tuple(_job(document)))


def _job(document: CausalJobDocument) -> Iterator[Block]:
    yield Title(document.path)
    if document.why_not is not None or document.base_ns is None:
        yield Text(f"No causal profile of the job: {document.why_not}.", "bad")
        yield Text("steps of all ranks at the same time", label="Record")
        return
    base = document.base_ns
    yield Text(f"The job's step takes {duration(base)} on {len(document.ranks)} ranks.")
    if document.nobody_late_ns is not None and document.no_transfers_ns is not None:
        yield Text(
            f"No rank slower than the median of its peers: {duration(document.nobody_late_ns)};"
            f" if transfers took no time: {duration(document.no_transfers_ns)}."
        )
    yield Gap()
    heads = ("piece", "on rank", "own time", "least", "free there", "free on all", "even")
    yield Table(heads, tuple(map(_job_row, document.pieces)), dense=True)
    yield Gap()
    yield Text(
        "own time: what the rank that has most of it would be faster by; least: the rank that has"
        " least. The job's step with the piece free on that rank, on all ranks, and with no rank"
        " taking longer for it than the one that has least."
    )


def _job_row(piece: JobPieceInfo) -> tuple[str, ...]:
    times = (
        piece.own_ns, piece.least_own_ns, piece.step_if_free_there_ns, piece.step_if_free_ns,
        piece.step_if_even_ns,
    )  # fmt: skip
    return (piece.name, str(piece.rank), *map(duration, times))
