"""One HTML file to look at and pass on: findings, timeline, tables, flame graphs, roofline."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pinchpoint.cli.output import note, reading, write_file, wrote
from pinchpoint.cli.page import Force, Redact
from pinchpoint.cli.recordings._answers import folders_of
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.report import diagnose
from pinchpoint.report.redact import redacted, redacted_trace
from pinchpoint.run_folder.layout import MEMORY, RUN_FILE
from pinchpoint.trace import Trace

if TYPE_CHECKING:
    from pinchpoint.report.documents.ranks import RanksReport

_OUTPUT = Path("report.html")


def command(
    file: Path,
    /,
    *,
    output: Annotated[Path, Parameter(name=("--output", "-o"))] = _OUTPUT,
    force: Force = False,
    redact: Redact = False,
) -> int:
    """Write the whole report of one recording as one HTML file that needs no network.

    Of a run with several ranks it also shows all of them together; of a folder with nothing but
    their recordings, that is the report.

    Parameters
    ----------
    file
        A recording of any known format, a run folder, or a folder with one recording a rank.
    output
        The file to write.
    force
        Replace a file of another kind that is there. A recording is never replaced.
    redact
        For passing it on: no folders, arguments or settings.
    """
    from pinchpoint.importers.ranks.files import check_one_job
    from pinchpoint.report.html_page import interactive

    private = folders_of([file])
    job = _all_ranks(file)
    if redact and job is not None:
        job = redacted(job, *private)
    if job is not None and not (file / RUN_FILE).is_file():
        from pinchpoint.report.html import render
        from pinchpoint.report.pages.ranks import ranks_page

        text = render(ranks_page(job, verbose=True, full=True))
        return _written(output, text, file, force=force)
    with reading(file) as progress:
        try:
            trace = load(file, progress)
        except UnreadableFile:
            check_one_job(file)  # says more about a folder
            raise
        snapshot = _snapshot(file, trace)
    report = diagnose(trace)
    if redact:
        report = redacted(report, *private)
        trace = redacted_trace(trace)
        snapshot = snapshot and redacted_trace(snapshot)
    text = interactive.render(trace, report, snapshot, job)
    return _written(output, text, file, force=force)


def _written(output: Path, text: str, file: Path, *, force: bool) -> int:
    write_file(output, text, inputs=(file,), force=force)
    wrote(output, f" ({len(text.encode()) / 1e6:.1f} MB)")
    return 0


def _all_ranks(folder: Path) -> "RanksReport | None":
    """What the ranks of a folder say together; None where it does not hold several."""
    from pinchpoint.importers.ranks.files import several_ranks
    from pinchpoint.jobs.run import diagnose_ranks

    return diagnose_ranks([folder]) if several_ranks(folder) else None


def _snapshot(folder: Path, trace: Trace) -> Trace | None:
    """The last snapshot of memory that the trace's rank of a run took; None without one."""
    taken = sorted((folder / MEMORY).glob("*.pickle*")) if folder.is_dir() else []
    own = [p for p in taken if p.name.startswith(f"rank{trace.rank or 0:05d}")]
    for path in reversed(own or taken):
        try:
            return load(path)
        except UnreadableFile as error:  # the rest of the run is worth a report all the same
            note(f"left out: {error}")
    return None
