"""What was kept of each rank as Parquet files, for questions that the report does not answer.

Three tables, each in files of many ranks (``steps-0.parquet``, …), so that memory stays bounded:
``steps``, ``step_parts`` and ``collectives``. Times are Unix nanoseconds on each rank's own clock;
what its clock is ahead by stands in the JSON document's table of ranks.
"""

from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from pinchpoint.analysis.ranks.summary import UNKNOWN, RankSummary, unpack, unpack_small
from pinchpoint.errors import UsageError
from pinchpoint.export.database import copy_to_parquet, duckdb_module

Columns = dict[str, Any]

RANKS_IN_A_FILE = 256  # bounds what is in memory at once


def write_rank_tables(summaries: Iterator[RankSummary], folder: Path) -> int:
    """Write the tables into a folder, made if need be; how many files.

    Raises MissingExtra without DuckDB, and UsageError if the folder cannot be written.
    """
    duckdb, files = duckdb_module(), 0
    try:
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
    except (OSError, duckdb.IOException) as error:
        raise UsageError(f"{folder}: {error}", hint="free space, or name another folder") from None
    return files


def _joined(parts: list[Columns]) -> Columns:
    parts = [part for part in parts if len(part["rank"])]
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]} if parts else {}


def _write(duckdb: Any, columns: Columns, path: Path) -> None:
    connection = duckdb.connect(":memory:")
    connection.register("given", columns)
    copy_to_parquet(connection, f"(SELECT {', '.join(map(_chosen, columns))} FROM given)", path)
    connection.close()


def _chosen(column: str) -> str:
    """What is not known is written as -1 in the columns of numbers, and as nothing in Parquet."""
    return f'NULLIF("{column}", {UNKNOWN}) AS "{column}"' if column in _NULLABLE else f'"{column}"'


_NULLABLE = ("bytes", "sequence")


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
