"""What holds each kernel back, by its hardware counters."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from msgspec.structs import replace

from pinchpoint.cli.output import look, show, show_json
from pinchpoint.cli.page import Redact
from pinchpoint.cli.recordings._answers import shared
from pinchpoint.cli.recordings.roofline import joined, measured_against
from pinchpoint.report import terminal
from pinchpoint.report.assemble.kernels import LaunchInfo, encode_kernels, kernels_document
from pinchpoint.report.documents.order import by_column, by_field
from pinchpoint.report.pages.kernels import kernels_page

Switch = Parameter(negative="")


def command(
    file: Path,
    /,
    *,
    counters: Path | None = None,
    json: Annotated[bool, Switch] = False,
    sort: str | None = None,
    verbose: Annotated[bool, Switch] = False,
    redact: Redact = False,
) -> int:
    """Profiled kernels: what bounds them, issues, metrics with good and poor marks.

    Of a recording without counters it shows the kernels by time.

    Parameters
    ----------
    file
        A report of Nsight Compute (.ncu-rep, or its CSV pages), or any other recording.
    counters
        A report of Nsight Compute of the same program, to be joined with the recording.
    json
        One JSON document on standard output and nothing else.
    sort
        Order of the rows: a column, such as calls or blocks_per_sm; of profiled launches a field,
        such as roof_ratio; default: time.
    verbose
        Show all launches, their metrics, stall reasons and what NVIDIA's own rules said.
    redact
        For passing it on: no folders, arguments or settings.
    """
    trace = measured_against(joined(file, counters), None, data_sheet=False)
    document = kernels_document(trace)
    if sort is not None and document.launches:
        document = replace(document, launches=by_field(document.launches, sort, LaunchInfo))
    elif sort is not None and document.kernels is not None:
        document = replace(document, kernels=by_column(document.kernels, sort))
    document = shared(document, [file], redact=redact)
    if json:
        show_json(encode_kernels(document))
    else:
        show(terminal.render(kernels_page(document, verbose=verbose), look()))
    return 0
