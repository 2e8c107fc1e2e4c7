"""The answer about a job from the part files of pinchpoint ranks --shard."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pinchpoint.cli.page import NO_PAGE, Page
from pinchpoint.cli.recordings.ranks import nothing_else, present_ranks
from pinchpoint.jobs.run import merge_parts

Switch = Parameter(negative="")


def command(
    *parts: Path,
    json: Annotated[bool, Switch] = False,
    page: Page = NO_PAGE,
    parquet: Path | None = None,
    verbose: Annotated[bool, Switch] = False,
) -> int:
    """Merge part files into the answer that pinchpoint ranks gives in one go.

    Parameters
    ----------
    parts
        Part files of all shards of one split. Shards that are missing are said.
    json
        One JSON document on standard output and nothing else.
    parquet
        Also write steps and collectives of all ranks to this folder (needs DuckDB).
    verbose
        Also show evidence, every late rank and every kind of collective.
    """
    nothing_else(page, parquet)
    report = merge_parts(parts, parquet)
    present_ranks(report, json=json, page=page, inputs=parts, verbose=verbose)
    return 0
