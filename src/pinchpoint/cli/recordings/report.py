"""One HTML file to look at and pass on: findings, timeline, tables, flame graphs, roofline."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pinchpoint.api import diagnose
from pinchpoint.cli.output import note, reading, write_file, wrote
from pinchpoint.cli.page import Force, Redact
from pinchpoint.cli.recordings._answers import folders_of
from pinchpoint.errors import UnreadableFile
from pinchpoint.importers import load
from pinchpoint.report.redact import redacted, redacted_trace
from pinchpoint.run_folder.layout import RUN_FILE

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
    from pinchpoint.jobs.full_page import full_page, job_in

    private = folders_of([file])
    job = job_in(file)
    if redact and job is not None:
        job = redacted(job, *private)
    if job is not None and not (file / RUN_FILE).is_file():
        return _written(output, full_page(file, None, None, job), file, force=force)
    with reading(file) as progress:
        try:
            trace = load(file, progress)
        except UnreadableFile:
            check_one_job(file)  # says more about a folder
            raise
    report = diagnose(trace)
    if redact:
        report, trace = redacted(report, *private), redacted_trace(trace)
    text = full_page(file, trace, report, job, redact=redact, note=note)
    return _written(output, text, file, force=force)


def _written(output: Path, text: str, file: Path, *, force: bool) -> int:
    write_file(output, text, inputs=(file,), force=force)
    wrote(output, f" ({len(text.encode()) / 1e6:.1f} MB)")
    return 0
