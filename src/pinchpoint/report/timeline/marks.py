"""What the numbers of the report are made of, as places in the timeline.

A mark is what a link of the page leads to: all events of some names, some slices, or stretches of
time. Keys are stable: ``finding sync-in-loop``, ``part gemm``, ``kernels-1`` (table and row).
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from pinchpoint.analysis.device.activity import device_activity
from pinchpoint.analysis.host.frames import frame_of
from pinchpoint.analysis.steps.steps import steps
from pinchpoint.analysis.tables.modules import MODULE_PREFIX
from pinchpoint.analysis.time.accounting import device_part
from pinchpoint.analysis.time.gaps import gaps
from pinchpoint.analysis.time.host_activity import GapKind
from pinchpoint.frozen import dataclass
from pinchpoint.report.documents.report import Report, ResultTable, finding_key
from pinchpoint.report.plain import plain
from pinchpoint.report.tables.columns import LONGEST_NAME
from pinchpoint.report.tables.time import idle_causes_shown
from pinchpoint.report.timeline.lanes import NO_LINK, Timeline
from pinchpoint.report.timeline.occurrences import Numbers, Occurrences, of_findings
from pinchpoint.trace import DeviceKind, HostKind, MemoryKind, Table, Trace

# ------------------------------------------------------------------------------------------------
# The names in the trace that the rows of a table stand for.


NamesOfRows = list[tuple[str, ...]]


def names_of_rows(trace: Trace, report: Report) -> Iterator[tuple[str, str, NamesOfRows]]:
    """Of each table whose rows are sums over names: its id, the kind of lane, names row by row."""
    for id_, column, kind, own in (
        ("kernels", "full_name", "device", lambda: _names(trace, trace.device_ops)),
        ("collectives", "full_name", "device", lambda: _names(trace, trace.device_ops)),
        ("operators", "name", "host", lambda: _names(trace, trace.host_ops)),
        ("waits", "call", "host", lambda: _names(trace, trace.api_calls)),
        ("source", "place", "host", lambda: _functions(trace)),
        ("modules", "module", "host", lambda: _modules(trace)),
    ):
        table = report.tables.get(id_)
        if table is not None and any(c.id == column for c in table.columns):
            yield id_, kind, _rows(table, column, own)


def _rows(table: ResultTable, column: str, own: Callable[[], dict[str, list[str]]]) -> NamesOfRows:
    by_text = own()
    position = [c.id for c in table.columns].index(column)
    return [tuple(by_text.get(str(row[position]).strip(), ())) for row in table.rows]


def _names(trace: Trace, rows: Table | None) -> dict[str, list[str]]:
    """Names by what a table shows of them: a very long one is cut there."""
    found: dict[str, list[str]] = {}
    for text in _distinct(trace, rows):
        found.setdefault(text[:LONGEST_NAME].strip(), []).append(text)
    return found


def _functions(trace: Trace) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in _distinct(trace, trace.host_ops, HostKind.PYTHON):
        frame = frame_of(text)
        if frame is not None:
            found.setdefault(f"{frame.file}:{frame.line}"[:LONGEST_NAME], []).append(text)
    return found


def _modules(trace: Trace) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in _distinct(trace, trace.host_ops, HostKind.MODULE):
        found.setdefault(text.removeprefix(MODULE_PREFIX), []).append(text)
    return found


def _distinct(trace: Trace, rows: Table | None, kind: HostKind | None = None) -> list[str]:
    if rows is None or not len(rows):
        return []
    names = rows["name"] if kind is None else rows["name"][rows["kind"] == kind]
    return [trace.names[i] for i in np.flatnonzero(np.bincount(names, minlength=1)).tolist()]


# ------------------------------------------------------------------------------------------------
# What the numbers of the report are made of, as places in the timeline.


MOST_PLACES = 2000  # of one mark; of more, neighbours are drawn as one
_LABEL_LIMIT = 80  # characters of a box at its widest


@dataclass(frozen=True)
class Mark:
    """One link's target. ``slices`` are positions in the timeline, ``starts`` and ``lengths``
    nanoseconds; ``count`` is how many places there are, however many are drawn."""

    label: str
    count: int
    names: tuple[str, ...] = ()  # as the trace spells them
    kind: str = ""  # of the lanes with these names: device, host
    slices: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()


def marks(trace: Trace, drawn: Timeline, report: Report) -> dict[str, Mark]:
    """Every mark that has a place, by key."""
    found = dict(_all(trace, drawn, report))
    return {key: mark for key, mark in found.items() if mark.names or mark.count}


def _all(trace: Trace, drawn: Timeline, report: Report) -> Iterator[tuple[str, Mark]]:
    yield from _findings(trace, drawn, report)
    yield from _parts(trace, report)
    yield from _steps(trace, report)
    yield from _idle(trace, report)
    yield from _copies(trace, drawn, report)
    for table, kind, names in names_of_rows(trace, report):
        for position, own in enumerate(names, 1):
            if own:
                yield f"{table}-{position}", Mark(_label(own[0]), 0, own, kind)


def _findings(trace: Trace, drawn: Timeline, report: Report) -> Iterator[tuple[str, Mark]]:
    for number, (item, places) in enumerate(of_findings(trace, report), 1):
        how = f" ({places.how})" if places.how else ""
        label = f"{number} · {item.id}{how}"
        if len(places):
            key = finding_key(report.findings[:number])
            yield f"finding {key}", of_rows(trace, drawn, label, places)


def of_rows(trace: Trace, drawn: Timeline, label: str, places: Occurrences) -> Mark:
    """The slices of some rows, or the time they take where they are many or not drawn alone."""
    slices = [drawn.place_of[table][rows] for table, rows in places.rows.items()]
    here = np.concatenate(slices) if slices else np.zeros(0, np.int64)
    alone = bool((here != NO_LINK).all() and not drawn.slices.count[here].any())
    if alone and len(here) <= MOST_PLACES and not len(places.start_ns):
        return Mark(label, len(here), slices=tuple(np.unique(here).tolist()))
    tables = [(getattr(trace, table), rows) for table, rows in places.rows.items()]
    start = [table["start_ns"][rows] for table, rows in tables]
    end = [table.end_ns[rows] for table, rows in tables]
    return of_times(
        label,
        np.concatenate((*start, places.start_ns)),
        np.concatenate((*end, places.end_ns)),
    )


def of_times(label: str, start: Numbers, end: Numbers) -> Mark:
    """Stretches of time; those that touch are one, and of very many the nearest to each other."""
    order = np.argsort(start, kind="stable")
    low = start[order]
    high = np.maximum.accumulate(end[order]) if len(end) else end
    apart = low[1:] - high[:-1]
    cuts = np.flatnonzero(apart > 0)
    count = len(cuts) + min(len(low), 1)
    if count > MOST_PLACES:
        widest = np.argpartition(apart[cuts], count - MOST_PLACES)[count - MOST_PLACES :]
        cuts = np.sort(cuts[widest])
    cuts = cuts + 1
    if len(low):
        low, high = low[np.r_[0, cuts]], high[np.r_[cuts - 1, len(high) - 1]]
    starts, lengths = tuple(low.tolist()), tuple((high - low).tolist())
    return Mark(label, count, starts=starts, lengths=lengths)


def _parts(trace: Trace, report: Report) -> Iterator[tuple[str, Mark]]:
    """The parts of the breakdown of a device: what it did, and why it was idle."""
    labels = {part.part: part.label for part in report.breakdown}
    for category, when in device_activity(trace).exclusive.items():
        part = device_part(category)
        if part.id in labels:
            yield f"part {part.id}", of_times(part.label, when.start, when.end)
    if not any(part.group == "idle" for part in report.breakdown):
        return
    idle = gaps(trace)
    for kind in GapKind:
        mine = idle.kind == kind
        if kind.id in labels and mine.any():
            yield (
                f"part {kind.id}",
                of_times(labels[kind.id], idle.start_ns[mine], idle.end_ns[mine]),
            )


def _steps(trace: Trace, report: Report) -> Iterator[tuple[str, Mark]]:
    table = report.tables.get("steps")
    if table is None:
        return
    found = steps(trace)
    for position, row in enumerate(table.rows, 1):
        mine = np.flatnonzero(found.number == row[0])[:1]
        label = f"step {row[0]}"
        yield f"steps-{position}", of_times(label, found.start_ns[mine], found.end_ns[mine])


def _idle(trace: Trace, report: Report) -> Iterator[tuple[str, Mark]]:
    table = report.tables.get("idle")
    if table is None:
        return
    found = gaps(trace)
    for position, cause in enumerate(idle_causes_shown(trace)[: len(table.rows)], 1):
        start, end = found.start_ns[cause.pieces], found.end_ns[cause.pieces]
        yield f"idle-{position}", of_times(_label(f"idle: {cause.kind.label}"), start, end)


def _copies(trace: Trace, drawn: Timeline, report: Report) -> Iterator[tuple[str, Mark]]:
    table, ops = report.tables.get("transfers"), trace.device_ops
    if table is None or ops is None:
        return
    columns = [column.id for column in table.columns]
    if not {"direction", "source", "target"} <= set(columns):
        return
    copies = ops["kind"] == DeviceKind.COPY
    for position, row in enumerate(table.rows, 1):
        said = dict(zip(columns, row, strict=True))
        mine = copies & _memory(ops, "from_memory", said["source"])
        mine &= _memory(ops, "to_memory", said["target"])
        places = Occurrences({"device_ops": np.flatnonzero(mine)})
        yield f"transfers-{position}", of_rows(trace, drawn, _label(said["direction"]), places)


def _memory(ops: Table, column: str, said: str | None) -> NDArray[np.bool_]:
    known: NDArray[np.bool_] = ops.known(column)
    return ~known if said is None else known & (ops[column] == MemoryKind[said.upper()])


def _label(text: str) -> str:
    return plain(text, _LABEL_LIMIT)
