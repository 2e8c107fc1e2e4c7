"""What was kept of each rank as Parquet files, for questions that the report does not answer.

Four tables, each in files of many ranks (``steps-0.parquet``, …), so that memory stays bounded:
``steps``, ``step_parts``, ``collectives``, and ``ranks`` with what the document's table has of the
first ones. Times are Unix nanoseconds on each rank's own clock; what it is ahead by stands in
``ranks``.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from pinchpoint.analysis.ranks.summary import UNKNOWN, RankSummary, unpack, unpack_small
from pinchpoint.errors import UsageError
from pinchpoint.export.database import copy_to_parquet, duckdb_module, why
from pinchpoint.report.assemble.ranks_tables import RANK_COLUMNS, Row

Columns = dict[str, Any]

RANKS_IN_A_FILE = 256  # bounds what is in memory at once


def write_rank_tables(summaries: Iterator[RankSummary], folder: Path) -> int:
    """Write the tables into a folder, made if need be; how many files.

    Raises MissingExtra without DuckDB, and UsageError if the folder cannot be written.
    """
    duckdb, files = duckdb_module(), 0
    with _written(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for number in count():
            some = list(islice(summaries, RANKS_IN_A_FILE))
            if not some:
                break
            for name, of_rank in TABLES.items():
                columns = _joined([of_rank(summary) for summary in some])
                if columns:
                    _write(duckdb, columns, folder / f"{name}-{number}.parquet")
                    files += 1
    return files


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, duckdb_module().IOException) as error:
        text = f"{folder}: cannot be written ({why(error)})"
        raise UsageError(text, hint="free space, or name another folder") from None


def write_rank_rows(folder: Path, count: int, row_of: Callable[[int], Row]) -> None:
    """Write the table of all ranks, which the document of a large job has only a part of."""
    duckdb, names = duckdb_module(), [column.id for column in RANK_COLUMNS]
    with _written(folder):
        for number, first in enumerate(range(0, count, RANKS_IN_A_FILE)):
            rows = [row_of(i) for i in range(first, min(first + RANKS_IN_A_FILE, count))]
            columns = {
                name: _column([row[at] for row in rows], text=name == "path")
                for at, name in enumerate(names)
            }
            _write(duckdb, columns, folder / f"ranks-{number}.parquet", NO_NUMBER)


def _column(values: list[Any], *, text: bool) -> Any:
    if text:
        return np.array([*values, ""], object)[:-1]
    kind = np.float64 if any(isinstance(value, float) for value in values) else np.int64
    return np.array([NO_NUMBER if value is None else value for value in values], kind)


NO_NUMBER = -(1 << 62)  # inside a column only: exact as a float, and no time


def _joined(parts: list[Columns]) -> Columns:
    parts = [part for part in parts if len(part["rank"])]
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]} if parts else {}


def _write(duckdb: Any, columns: Columns, path: Path, unknown: int = UNKNOWN) -> None:
    connection = duckdb.connect(":memory:")
    connection.register("given", columns)
    copy_to_parquet(
        connection,
        f"(SELECT {', '.join(_chosen(name, unknown) for name in columns)} FROM given)",
        path,
    )
    connection.close()


def _chosen(column: str, unknown: int) -> str:
    """What is not known is written as -1 in the columns of numbers, and as nothing in Parquet."""
    return f'NULLIF("{column}", {unknown}) AS "{column}"' if column in _NULLABLE else f'"{column}"'


_ALWAYS = ("rank", "path", "steps")
_NULLABLE = (
    *("bytes", "sequence"),
    *(column.id for column in RANK_COLUMNS if column.id not in _ALWAYS),
)


def _steps(summary: RankSummary) -> Columns:
    columns = summary.steps
    return _of_rank(
        summary,
        step=unpack(columns.number),
        start_ns=unpack(columns.start_ns),
        end_ns=unpack(columns.end_ns),
        complete=unpack(columns.complete) > 0,
        host_ns=unpack(columns.host_ns),
        recording_ns=unpack(columns.recording_ns),
        kernels=unpack(columns.kernels),
    )


def _step_parts(summary: RankSummary) -> Columns:
    number, parts = unpack(summary.steps.number), summary.parts
    labels = np.array([*(part.id for part in parts), ""], object)[:-1]
    return _of_rank(
        summary,
        step=np.repeat(number, len(parts)),
        part=np.tile(labels, len(number)),
        ns=summary.parts_by_step().ravel() if parts else np.zeros(0, np.int64),
    )


def _collectives(summary: RankSummary) -> Columns:
    calls, kinds = summary.calls, summary.call_kinds
    kind, number = unpack_small(calls.kind), unpack(summary.steps.number)

    def text(of: Callable[[int], str | None]) -> Any:
        return np.array([*(of(i) or "" for i in range(len(kinds))), ""], object)[:-1][kind]

    sizes = np.array([UNKNOWN if k.bytes is None else k.bytes for k in kinds], np.int64)
    return _of_rank(
        summary,
        step=number[unpack_small(calls.step)] if len(number) else np.zeros(0, np.int64),
        kind=text(lambda i: kinds[i].kind),
        bytes=sizes[kind] if len(kinds) else np.zeros(0, np.int64),
        dtype=text(lambda i: kinds[i].dtype),
        kernel=text(lambda i: kinds[i].kernel),
        group=text(lambda i: summary.groups[kinds[i].group].name),
        group_description=text(lambda i: summary.groups[kinds[i].group].description),
        start_ns=unpack(calls.start_ns),
        duration_ns=unpack(calls.duration_ns),
        exposed_ns=unpack(calls.exposed_ns),
        sequence=unpack_small(calls.sequence),
    )


def _of_rank(summary: RankSummary, **columns: Any) -> Columns:
    length = len(next(iter(columns.values())))
    return {"rank": np.full(length, summary.rank or 0)} | columns


TABLES: dict[str, Callable[[RankSummary], Columns]] = {
    "steps": _steps,
    "step_parts": _step_parts,
    "collectives": _collectives,
}
