"""The tables and the heat map of a job."""

from collections.abc import Callable, Sequence

import numpy as np

from pinchpoint.analysis.ranks.buckets import ceiling_bytes_per_s
from pinchpoint.analysis.ranks.communication import KindOfCall
from pinchpoint.analysis.ranks.job import Job
from pinchpoint.analysis.statistics import mean_of_steps
from pinchpoint.report.documents.rank_records import Records
from pinchpoint.report.documents.ranks import HeatMap
from pinchpoint.report.documents.report import ResultTable, TableColumn
from pinchpoint.report.tables.columns import Column, result_table
from pinchpoint.trace.arrays import Floats

WORTH_A_LOOK_RATIO = 0.01  # of the step: a map of smaller differences would show noise
MOST_HEAT_ROWS = 128  # a screen has no more
MOST_HEAT_COLUMNS = 100  # over the width: cells that can be told apart
MOST_OUTLIERS = 20  # ranks that are looked at one by one
# Of the table of all ranks in the document, which stays in memory: a megabyte. Of a larger job the
# first are there and those that stand out; --parquet has all.
MOST_RANKS = 4096

_COLLECTIVES: tuple[Column[KindOfCall], ...] = (
    Column("kind", "collective", "", lambda k: k.kind),
    Column("bytes", "message", "bytes", lambda k: k.bytes),
    Column("per_step", "per step", "count", lambda k: round(k.per_step, 2)),
    Column("ranks", "ranks", "count", lambda k: k.ranks),
    Column("exposed_waiting", "waiting a step", "ns", lambda k: k.exposed_waiting_ns_per_step),
    Column("exposed_transfer", "transfer a step", "ns", lambda k: k.exposed_transfer_ns_per_step),
    Column("transfer", "one transfer", "ns", lambda k: k.transfer_ns),
    Column("waiting", "one wait", "ns", lambda k: k.waiting_ns),
    Column("algbw", "algorithm rate", "bytes/s", lambda k: k.algorithm_bytes_per_s),
    Column("busbw", "bus rate", "bytes/s", lambda k: k.bus_bytes_per_s),
    Column("best_busbw", "best bus rate", "bytes/s", lambda k: k.best_bus_bytes_per_s),
    Column("group", "group", "", lambda k: k.group),
    Column("groups", "groups", "count", lambda k: k.groups),
    Column("dtype", "type", "", lambda k: k.dtype),
    Column("kernel", "kernel", "", lambda k: k.kernel),
)
_COLLECTIVES_NOTE = (
    "Times a step are those that nothing hides, mean over ranks. A transfer is the shortest stay"
    " of any rank: that of the last one. The kernel's name tells the algorithm of old NCCL only;"
    " since 2.19 one kernel serves several."
)

RANK_COLUMNS = (
    TableColumn(id="rank", label="rank", unit="count"),
    TableColumn(id="own", label="own time a step", unit="ns"),
    TableColumn(id="excess", label="beyond its peers", unit="ns"),
    TableColumn(id="waiting", label="waiting a step", unit="ns"),
    TableColumn(id="transfer", label="transfer a step", unit="ns"),
    TableColumn(id="last", label="came last", unit="ratio"),
    TableColumn(id="steps", label="steps", unit="count"),
    TableColumn(id="clock", label="clock ahead by", unit="ns"),
    TableColumn(id="uncertainty", label="± clock", unit="ns"),
    TableColumn(id="path", label="file", unit=""),
)


def tables(records: Records, job: Job) -> dict[str, ResultTable]:
    """Collectives, the ranks that stand out, and all ranks."""
    device = next((r.device for r in job.facts.ranks if r.device), None)
    of_link = Column[KindOfCall]("of_link", "of the link", "ratio", lambda k: _of_link(device, k))
    columns = (*_COLLECTIVES[:11], of_link, *_COLLECTIVES[11:])
    row_of, count = rank_rows(records, job), len(job.facts.ranks)
    rows = [row_of(i) for i in range(min(count, MOST_RANKS))]
    excess = np.nan_to_num(job.over.mean_ns)
    late = [i for i in np.argsort(-excess, kind="stable").tolist() if excess[i] > 0]
    outliers = [row_of(i) for i in late[:MOST_OUTLIERS]]
    return {
        "collectives": result_table(
            "collectives", "Collectives", columns, job.between.kinds, _COLLECTIVES_NOTE
        ),
        "outliers": _table("outliers", "Ranks slower than their peers", outliers, len(late)),
        "ranks": _table("ranks", "All ranks", rows, count),
    }


def _of_link(device: str | None, kind: KindOfCall) -> float | None:
    ceiling = ceiling_bytes_per_s(device, kind.ranks)
    rate = kind.bus_bytes_per_s
    return None if ceiling is None or rate is None else round(rate / ceiling, 4)


def _table(id_: str, title: str, rows: Sequence[tuple[object, ...]], in_all: int) -> ResultTable:
    return ResultTable(
        id=id_,
        title=title,
        columns=RANK_COLUMNS,
        rows=tuple(rows),
        rows_left_out=in_all - len(rows),
    )


Row = tuple[int | float | str | None, ...]


def rank_rows(records: Records, job: Job) -> Callable[[int], Row]:
    """The row of a rank, by its position: the columns of ``RANK_COLUMNS``."""
    facts, between, clocks = job.facts, job.between, job.clocks
    own, excess = mean_of_steps(facts.own_ns), mean_of_steps(job.over.ns)
    known = ~np.isnan(facts.window_ns)
    steps = known.sum(axis=1)
    waiting = np.where(known, between.waiting_ns, 0).sum(axis=1) / np.maximum(steps, 1)
    transfer = np.where(known, between.transfer_ns, 0).sum(axis=1) / np.maximum(steps, 1)

    def row(i: int) -> Row:
        took_part, aligned = int(between.took_part[i]), bool(clocks.aligned[i])
        return (
            facts.ranks[i].rank,
            _int(own[i]),
            _int(excess[i]),
            round(float(waiting[i])) if steps[i] else None,
            round(float(transfer[i])) if steps[i] else None,
            round(float(between.was_last[i]) / took_part, 3) if took_part else None,
            int(steps[i]),
            int(clocks.offset_ns[i]) if aligned else None,
            _int(float(clocks.uncertainty_ns[i])) if aligned else None,
            records.entries[i].path,
        )

    return row


def heat_map(job: Job) -> HeatMap | None:
    """Lateness of every rank and step, in blocks that a screen can show, each as its worst."""
    values = job.over.sure_ns
    if not values.size or np.nan_to_num(values).max() < WORTH_A_LOOK_RATIO * job.step_ns:
        return None
    rows, columns = (
        _blocks(values.shape[0], MOST_HEAT_ROWS),
        _blocks(values.shape[1], MOST_HEAT_COLUMNS),
    )
    cells = [tuple(_worst(values[r[0] : r[1], c[0] : c[1]]) for c in columns) for r in rows]
    ranks, numbers = [r.rank for r in job.facts.ranks], job.facts.step_numbers.tolist()
    return HeatMap(
        rows=tuple((ranks[a], ranks[b - 1]) for a, b in rows),
        columns=tuple((numbers[a], numbers[b - 1]) for a, b in columns),
        excess_ns=tuple(cells),
    )


def _blocks(count: int, most: int) -> list[tuple[int, int]]:
    each = -(-count // most)
    return [(a, min(a + each, count)) for a in range(0, count, each)]


def _worst(values: Floats) -> int | None:
    known = values[~np.isnan(values)]
    return round(float(known.max())) if len(known) else None


def _int(value: float) -> int | None:
    return None if np.isnan(value) else round(float(value))
