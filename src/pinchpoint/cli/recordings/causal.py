"""What a step would be without each of its pieces, or with it at the machine's limit."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from msgspec.structs import replace

from pinchpoint.cli.output import look, reading, show, show_json
from pinchpoint.cli.page import NO_PAGE, Page
from pinchpoint.cli.recordings._answers import shared
from pinchpoint.cli.recordings.roofline import joined, measured_against
from pinchpoint.importers import load
from pinchpoint.importers.ranks.files import find_rank_files, several_ranks
from pinchpoint.importers.run_folder import names_beside
from pinchpoint.report import html, terminal
from pinchpoint.report.documents.causal import (
    JobPieceInfo,
    PieceInfo,
    causal_document,
    causal_job_document,
    encode_causal,
)
from pinchpoint.report.documents.order import by_field
from pinchpoint.report.pages.causal import causal_job_page, causal_page

Switch = Parameter(negative="")
Cuts = Literal[
    "operator", "kernel", "line", "function", "module", "phase", "copy", "collective", "wait"
]


def command(
    file: Path,
    /,
    *,
    by: Cuts | None = None,
    ceilings: Path | None = None,
    json: Annotated[bool, Switch] = False,
    page: Page = NO_PAGE,
    sort: str | None = None,
    verbose: Annotated[bool, Switch] = False,
) -> int:
    """What the step would be if a piece cost nothing, or ran at the machine's limit.

    Parameters
    ----------
    file
        A recording, or a run folder, with host and device activity; or a folder with the
        recordings of all ranks of a job: what a piece of one rank is worth to the job.
    by
        One way to cut the step: operator, kernel, line, function, module, phase (what the program
        marks; else forward, backward, optimizer), copy, collective or wait. Default: all of them.
    ceilings
        Ceilings measured by pinchpoint ceilings; default: those stored for this device, if any.
    json
        One JSON document on standard output and nothing else.
    sort
        Order of the pieces: a field of theirs, such as step_at_limit, device or critical; default:
        step_if_free.
    verbose
        Show all pieces.
    """
    if several_ranks(file):
        return _of_job(file, json=json, page=page, sort=sort)
    trace = measured_against(joined(file, None), ceilings, data_sheet=False)
    document = causal_document(trace, by)
    if sort is not None:
        document = replace(document, pieces=by_field(document.pieces, sort, PieceInfo))
    document = shared(document, [file], redact=page.redact)
    if json:
        show_json(encode_causal(document))
    else:
        show(terminal.render(causal_page(document, by=by, sort=sort, verbose=verbose), look()))
    if page.html:
        page.write(html.render(causal_page(document, by=by, sort=sort, verbose=True)), [file])
    return 0


def _of_job(folder: Path, *, json: bool, page: Page, sort: str | None) -> int:
    from pinchpoint.analysis.causal.of_job import of_job, own_gains
    from pinchpoint.analysis.ranks.job import reduce
    from pinchpoint.jobs.rank_map import summary_of

    files, summaries, gains = find_rank_files([folder]).files, [], []
    for file in files:  # one rank after the other: never more than one of them is in memory
        with reading(Path(file.path)) as progress:
            trace = load(file.path, progress)
        summaries.append(summary_of(trace, file.path))
        gains.append(own_gains(trace, names_beside(file.path)))
    found = of_job(reduce(lambda: iter(summaries)), gains)
    ranks = [at if file.rank is None else file.rank for at, file in enumerate(files)]
    document = causal_job_document(str(folder), ranks, found)
    if sort is not None:
        document = replace(document, pieces=by_field(document.pieces, sort, JobPieceInfo))
    document = shared(document, [folder], redact=page.redact)
    if json:
        show_json(encode_causal(document))
    else:
        show(terminal.render(causal_job_page(document), look()))
    if page.html:
        page.write(html.render(causal_job_page(document)), [folder])
    return 0
