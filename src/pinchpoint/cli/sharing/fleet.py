"""Thousands of runs below a folder or bucket: what changed for good, which causes cost most."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from pinchpoint.cli.output import counting, look, note, show, show_json
from pinchpoint.cli.page import NO_PAGE, Page
from pinchpoint.cli.recordings._answers import shared
from pinchpoint.cli.sharing.sql import DEFAULT_SECONDS, MOST_ROWS, show_rows
from pinchpoint.errors import UsageError
from pinchpoint.export.database import Limits, query_columns
from pinchpoint.report import html, terminal
from pinchpoint.report.documents.fleet import encode_fleet
from pinchpoint.report.pages.fleet import fleet_page
from pinchpoint.serve.fleet import (
    Job,
    diagnose_runs,
    fleet_document,
    jobs_of,
    root_of,
    tables,
)
from pinchpoint.serve.index import Index, index_file
from pinchpoint.serve.run_places import RunPlace, run_places

Switch = Parameter(negative="")


def command(  # noqa: PLR0913 - one argument an option
    place: str,
    /,
    *,
    by: Literal["program", "script"] = "program",
    diagnose: int = 0,
    sql: str | None = None,
    json: Annotated[bool, Switch] = False,
    csv: Annotated[bool, Switch] = False,
    page: Page = NO_PAGE,
    verbose: Annotated[bool, Switch] = False,
) -> int:
    """What all runs below a folder or bucket say together.

    Jobs leave run folders there, by pinchpoint run or pp.watch. Steps that became longer for good
    are named with the commits between, causes with what their fixes would save.

    Parameters
    ----------
    place
        A folder, or a URL such as s3://bucket/runs (needs fsspec and the store's driver).
    by
        Which runs are of one program: those with one command line (program), or with one script
        whatever its arguments (script).
    diagnose
        Also read the recordings of so many runs that were not read yet, the newest first.
    sql
        Instead ask in SQL, of the tables runs and findings (needs DuckDB):
        "SELECT host, median(step_ms) FROM runs GROUP BY ALL".
    json
        One JSON document on standard output and nothing else.
    csv
        With --sql: comma-separated values.
    verbose
        Show all programs, changes and causes.
    """
    if diagnose < 0:
        raise UsageError("--diagnose must not be negative", hint="--diagnose 100")
    if csv and sql is None:
        raise UsageError("--csv goes with --sql", hint='--sql "SELECT * FROM runs"')
    if page.redact and sql is not None:
        raise UsageError(
            "--redact: an answer in SQL says what was asked", hint="leave one of the two out"
        )
    runs = run_places(place)
    index = Index(index_file(root_of(place)))
    with counting("reading runs", rules=False) as progress:
        jobs = jobs_of(runs, index, progress)
    if diagnose:
        jobs = _diagnosed(runs, jobs, index, diagnose)
    if sql is not None:
        limits = Limits(DEFAULT_SECONDS, None, MOST_ROWS)
        show_rows(*query_columns(tables(jobs), sql, limits), json=json, csv=csv)
        return 0
    if page.redact:  # programs go by their scripts, as arguments are left out
        document = fleet_document(_last_part(place), jobs, "script")
    else:
        document = fleet_document(place, jobs, by)
    document = shared(document, [Path(place)], redact=page.redact)
    if json:
        show_json(encode_fleet(document))
    else:
        show(terminal.render(fleet_page(document, verbose=verbose), look()))
    if page.html:
        page.write(html.render(fleet_page(document, verbose=True)), [Path(place)])
    return 0


def _last_part(place: str) -> str:
    return place.rstrip("/").rpartition("/")[2]


def _diagnosed(
    runs: tuple[RunPlace, ...], jobs: tuple[Job, ...], index: Index, most: int
) -> tuple[Job, ...]:
    """The same runs, once recordings of the newest ones have been read."""
    places = {run.name: run for run in runs}
    newest = [places[job.facts.name] for job in reversed(jobs) if job.facts.recordings]
    with counting("diagnosing runs") as progress:
        read = diagnose_runs(newest, index, most, progress)
    note(f"diagnosed {read:,} runs")
    return jobs_of(runs, index)
