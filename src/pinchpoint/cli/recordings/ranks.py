"""Many ranks of one job: who holds up the others, transfers, clocks; on one machine or on Ray."""

import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from pinchpoint.cli.output import counting, look, may_write, note, show, show_json, wrote
from pinchpoint.cli.page import NO_PAGE, Page
from pinchpoint.cli.recordings._answers import (
    answers_of,
    archive_as_folder,
    must_be_usable,
    renamed,
    shared,
)
from pinchpoint.errors import UsageError
from pinchpoint.importers import load
from pinchpoint.jobs.run import Engine, OnRay, diagnose_ranks, write_shard
from pinchpoint.replacing import check_free_folder
from pinchpoint.report import diagnose, terminal
from pinchpoint.report.documents.clock import Clock, job_on_clock
from pinchpoint.report.documents.order import tables_by
from pinchpoint.report.documents.rank_records import PartHeader
from pinchpoint.report.documents.ranks import RanksReport, encode_ranks
from pinchpoint.report.pages.ranks import ranks_page
from pinchpoint.report.redact import redacted_trace
from pinchpoint.run_folder.layout import RUN_FILE

Switch = Parameter(negative="")


@dataclass(frozen=True)
class Where:
    """Where the recordings are read.

    Parameters
    ----------
    engine
        local (processes on this machine) or ray.
    ray_address
        Of a running Ray cluster, such as auto or ray://head:10001; without it one is started here.
    shard
        Read only part I of N, such as 3/64, and write it to the file of --output.
    output
        Where a shard's part file goes; pinchpoint merge makes the answer from all of them.
    """

    engine: Literal["local", "ray"] = "local"
    ray_address: str | None = None
    shard: str | None = None
    output: Annotated[Path | None, Parameter(name=("--output", "-o"))] = None


_HERE = Where()
_PART_BEGINS = msgspec.json.encode(PartHeader())


def command(
    *places: str,
    json: Annotated[bool, Switch] = False,
    page: Page = NO_PAGE,
    parquet: Path | None = None,
    where: Annotated[Where, Parameter(name="*")] = _HERE,
    clock: Clock = "unprofiled",
    sort: str | None = None,
    verbose: Annotated[bool, Switch] = False,
) -> int:
    """Analyse the recordings of all ranks of a job together.

    Clocks are aligned by the collectives that ranks leave together; each collective is split into
    waiting for the last rank and transfer; late ranks are named with what they did meanwhile.

    Parameters
    ----------
    places
        Files, folders, globs, lists of paths (.txt) or URLs such as s3://bucket/run.
    json
        One JSON document on standard output and nothing else.
    parquet
        Also write steps and collectives of all ranks to this folder (needs DuckDB).
    clock
        Of the answer in the terminal: unprofiled (without the profiler), or recorded.
    sort
        Order of the tables that have this column, such as transfer_ns.
    verbose
        Also show evidence, every late rank and every kind of collective.
    """
    if not places:
        raise UsageError("which recordings?", hint="pinchpoint ranks DIR")
    engine = _engine(where)
    if where.shard is not None or where.output is not None:
        if json or page.html or parquet or page.redact:
            raise UsageError(
                "a shard has no answer of its own", hint="pinchpoint merge *.part --html OUT"
            )
        return _shard(places, where, engine, force=page.force)
    nothing_else(page, parquet)
    with ExitStack() as stack, counting() as progress:
        copies = [stack.enter_context(archive_as_folder(place)) for place in places]
        report = diagnose_ranks(copies, engine, progress, parquet)
        for copy, place in zip(copies, places, strict=True):
            report = renamed(report, copy, place)
    inputs = [Path(place) for place in places]
    if report.job.ranks == 1 and len(inputs) == 1 and inputs[0].is_file():
        within = answers_of(inputs).within  # several ranks in one file
        report = within.jobs[0] if within and within.jobs else report
    if sort is not None:
        (report,), verbose = tables_by([report], sort), True
    present_ranks(report, json=json, page=page, inputs=inputs, verbose=verbose, clock=clock)
    return 0


def nothing_else(page: Page, parquet: Path | None) -> None:
    """Raise UsageError where tables cannot be written, could not be passed on, or would take the
    place of tables of somebody else."""
    if parquet is None:
        return
    if page.redact:
        raise UsageError("--redact leaves nothing out of --parquet", hint="one without the other")
    check_free_folder(parquet)
    for there in sorted(parquet.glob("*.parquet")):
        if re.fullmatch(r"[a-z_]+-\d+", there.stem):  # as ours are called: steps-0
            may_write(there, b"PAR1\0", force=page.force)


def _engine(where: Where) -> Engine:
    if where.engine == "ray":
        return OnRay(where.ray_address)
    if where.ray_address is not None:
        raise UsageError("--ray-address goes with --engine ray", hint="--engine ray")
    return None


def _shard(places: tuple[str, ...], where: Where, engine: Engine, *, force: bool) -> int:
    if where.shard is None or where.output is None:
        raise UsageError("--shard and --output go together", hint="--shard 3/64 -o 3.part")
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", where.shard)
    if match is None:
        raise UsageError(f"--shard {where.shard}: not I/N", hint="--shard 3/64")
    inputs = [Path(place) for place in places]
    may_write(where.output, _PART_BEGINS, inputs=inputs, force=force)
    with counting() as progress:
        count = write_shard(places, (int(match[1]), int(match[2])), where.output, engine, progress)
    wrote(where.output, f" with {count:,} ranks; pinchpoint merge makes the answer")
    return 0


def present_ranks(
    report: RanksReport,
    *,
    json: bool,
    page: Page = NO_PAGE,
    inputs: Sequence[Path] = (),
    verbose: bool = False,
    clock: Clock = "unprofiled",
) -> None:
    """Write the answer to standard output, and the page where one is asked for.

    Raises UnreadableFile where no recording could be used: then there is no answer.
    """
    must_be_usable(report)
    report = shared(report, inputs, redact=page.redact)
    if json:
        show_json(encode_ranks(report))
    else:
        shown = ranks_page(job_on_clock(report, clock), verbose=verbose)
        show(terminal.render(shown, look()))
    if page.html is not None:
        page.write(_page_of(inputs, report, redact=page.redact), inputs)


def _page_of(inputs: Sequence[Path], job: RanksReport, *, redact: bool) -> str:
    """The page of a run folder with its first rank, or that of the job alone."""
    from pinchpoint.jobs.full_page import full_page

    folder = inputs[0] if len(inputs) == 1 else None
    if folder is None or not (folder / RUN_FILE).is_file():
        return full_page(Path(), None, None, job)
    trace = load(folder)
    report = shared(diagnose(trace), inputs, redact=redact)
    if redact:
        trace = redacted_trace(trace)
    return full_page(folder, trace, report, job, redact=redact, note=note)
